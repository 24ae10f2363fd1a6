//! A profile (`app.pgprof`) of units of work: read, merged, written again and shown.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pg_graph::units::{Profile, Rule, TypeOptions};

fuzz_target!(|bytes: &[u8]| {
    let Ok(profile) = Profile::decode(bytes) else { return };
    // What was understood can be written again, and is then understood the same.
    let again = profile.encode().expect("a profile that was read can be written");
    assert_eq!(Profile::decode(&again).as_ref(), Ok(&profile));
    let twice = profile.merge(&profile);
    assert_eq!(twice.functions(), profile.functions());
    // What people say of a type is kept.
    let mut named = profile.clone();
    for listed in profile.listed(TypeOptions { most: 64, ..TypeOptions::default() }, Rule::default()) {
        let Some(first) = listed.of.types.trees().first() else { continue };
        named.silence_type(&listed.key, &first.called(), profile.last_said().saturating_add(1), true);
    }
    if let Ok(bytes) = named.encode() {
        assert_eq!(Profile::decode(&bytes), Ok(named));
    }
    let text = profile.show(TypeOptions { most: 64, ..TypeOptions::default() }, Rule::default());
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
});
