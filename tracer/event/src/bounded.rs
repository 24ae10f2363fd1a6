//! Reading without trust: sequences and texts that end where they are too long, before they are stored.

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// A sequence of at most `MOST` items, for `#[serde(deserialize_with = "sequence::<MOST, _, _>")]`.
///
/// # Errors
/// When there are more, at the first that is too many.
pub fn sequence<'de, const MOST: usize, T, D>(from: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    struct Items<const MOST: usize, T>(PhantomData<T>);
    impl<'de, const MOST: usize, T: Deserialize<'de>> Visitor<'de> for Items<MOST, T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            write!(f, "a sequence of at most {MOST}")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
            // What the input says of its length is not believed: room is made as items come.
            let mut all = Vec::new();
            while let Some(item) = items.next_element()? {
                if all.len() == MOST {
                    return Err(A::Error::custom(format_args!("more than {MOST} items")));
                }
                all.push(item);
            }
            Ok(all)
        }
    }
    from.deserialize_seq(Items::<MOST, T>(PhantomData))
}

/// A text of at most `MOST` bytes.
///
/// # Errors
/// When it is longer.
pub fn text<'de, const MOST: usize, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    struct Text<const MOST: usize>;
    impl<const MOST: usize> Visitor<'_> for Text<MOST> {
        type Value = String;

        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            write!(f, "a text of at most {MOST} bytes")
        }

        fn visit_str<E: Error>(self, s: &str) -> Result<String, E> {
            if s.len() > MOST {
                return Err(E::custom(format_args!("a text of {} bytes, more than {MOST}", s.len())));
            }
            Ok(s.to_string())
        }
    }
    from.deserialize_str(Text::<MOST>)
}
