//! What a collector sent, for tests that look at it when it has ended.

use pg_event::{Catalog, Event, Item};

/// All rows and events.
pub fn gathered(items: impl IntoIterator<Item = Item>) -> (Catalog, Vec<Event>) {
    let (mut catalog, mut events) = (Catalog::default(), Vec::new());
    for item in items {
        match item {
            Item::Catalog(d) => assert_eq!(catalog.apply(d), 0, "rows were refused"),
            Item::Events(e) => events.extend(e),
            Item::End { .. } => {}
        }
    }
    (catalog, events)
}
