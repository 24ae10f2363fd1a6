//! scratch
use pg_tui::session::Session;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let s = Session::open(std::path::Path::new(&a[1])).unwrap();
    let mut cat = pg_event::Catalog::default();
    let mut items = s.items();
    while let Some(i) = items.next() {
        match i {
            pg_event::Item::Catalog(d) => {
                cat.apply(d);
            }
            pg_event::Item::Events(ev) => {
                for e in ev {
                    let t = cat.thread(e.thread);
                    let name = t.map_or(String::new(), |t| format!("{}:{}", t.name, t.tid));
                    if a.len() < 3 || name.contains(&a[2]) {
                        match e.kind {
                            pg_event::Kind::OffCpu(o) => println!(
                                "{:.6} {name} OFF {:.6}..{:.6} {:?} {} {:?} {:?} by {:?} open={} ustack={:?}",
                                e.time as f64 / 1e9,
                                o.start as f64 / 1e9,
                                o.woken as f64 / 1e9,
                                o.state,
                                o.syscall.name().unwrap_or_default(),
                                cat.object(o.object).map(|o| o.label()),
                                o.waker_context,
                                cat.thread(o.waker).map(|t| format!("{}:{}", t.name, t.tid)),
                                o.open,
                                cat.show_stack(o.user_stack).iter().take(4).collect::<Vec<_>>()
                            ),
                            k => println!("{:.6} {name} {:?}", e.time as f64 / 1e9, k),
                        }
                    }
                }
            }
            e => println!("{e:?}"),
        }
    }
}
