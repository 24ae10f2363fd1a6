//! What is found, and in which order.

use super::*;

#[test]
fn letters_here_and_there_are_no_hit_where_another_has_the_word() {
    let names = ["lua_pcall", "luaV_execute", "mysql_handle_limit_of_user_data", "main"];
    let item = |n: &&str| Item {
        text: (*n).into(),
        detail: "a module".into(),
        target: Target::Function(Vec::new()),
        far: false,
    };
    let index = Index { items: names.iter().map(item).collect() };
    let found = |query: &str| {
        let (hits, total) = index.find(query, &|| false);
        assert_eq!(hits.len(), total);
        hits.into_iter().map(|h| h.text).collect::<Vec<_>>()
    };
    assert_eq!(found("lua"), ["lua_pcall", "luaV_execute"]);
    assert_eq!(found("lvex"), ["luaV_execute"], "that is the best there is");
    assert_eq!(found("").len(), 4);
}

#[test]
fn whole_words_come_first() {
    let item = |text: &str, target, far| Item { text: text.into(), detail: String::new(), target, far };
    let function = || Target::Function(Vec::new());
    let index = Index {
        items: vec![
            item("ProcSleep", function(), false),
            item("sleep", function(), false),
            item("unix::sleep", function(), true),
            item("sleepy:1", Target::Process(ProcessId(1)), false),
            item("sleep:812", Target::Process(ProcessId(2)), false),
            item("sleep:813", Target::Process(ProcessId(3)), true),
        ],
    };
    let (hits, _) = index.find("sleep", &|| false);
    let names: Vec<_> = hits.iter().map(|h| h.text.as_str()).collect();
    let wanted = ["sleep:812", "sleep", "sleep:813", "sleepy:1", "ProcSleep", "unix::sleep"];
    assert_eq!(names, wanted);
    assert!(has_word("std::thread::Sleep", "sleep") && !has_word("sleep", "Sleep"));
}

/// What the focus has nothing to do with comes last, also where it fits better, and is found all the same.
#[test]
fn what_is_of_the_focus_comes_first() {
    let item = |(text, far): (&str, bool)| Item {
        text: text.into(),
        detail: "a module".into(),
        target: Target::Function(Vec::new()),
        far,
    };
    let index = Index { items: [("lock", true), ("unlock_all", false), ("relock", true)].map(item).into() };
    let found =
        |query: &str| index.find(query, &|| false).0.into_iter().map(|h| (h.text, h.far)).collect::<Vec<_>>();
    let own = ("unlock_all".to_owned(), false);
    assert_eq!(found("lock").first(), Some(&own));
    assert!(found("lock").contains(&("lock".into(), true)));
    assert_eq!(found(""), [own, ("lock".into(), true), ("relock".into(), true)]);
    assert_eq!(found("relock"), [("relock".into(), true)]);
}
