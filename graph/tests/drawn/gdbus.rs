//! Services that call each other over a bus by GIO, one thread of which sends and receives for all of its process.

use crate::draw::bus::Bus;
use pg_event::{ObjectKind, Relation};

/// Each of two services calls the other one in the middle of a request: until its time-out, or for good.
#[test]
fn two_services_that_call_each_other_over_a_bus_are_a_circle() {
    for over in [true, false] {
        let mut b = Bus::new(&["call Ask", "first serve", "second serve"]);
        let call = b.ends[0].0;
        let stack = b.d.stack(&[
            "poll (libc.so.6)",
            "g_main_loop_run (libglib-2.0.so.0)",
            "g_dbus_connection_send_message_with_reply_sync (libgio-2.0.so.0)",
            "ask (svc)",
        ]);
        let mut mains = Vec::new();
        for n in 1..3 {
            let main = b.ends[n].0;
            b.ends[n].0 = b.d.thread(main, "gdbus", 0.0);
            mains.push((main, b.d.object(ObjectKind::EventFd, 40 + n as u64, 0, "")));
        }
        b.waits(1, 0.5, 1.003);
        b.send(0, 1, 1.0);
        b.waits(2, 0.5, 1.013);
        b.send(1, 2, 1.01);
        b.waits(1, 1.011, 1.023);
        b.send(2, 1, 1.02);
        for (n, (main, told)) in mains.iter().enumerate() {
            let (receiver, own, _) = b.ends[n + 1];
            let at = 0.01 * n as f64;
            if over {
                b.d.wait(receiver, 1.024 + at, 10.0 + at, "poll").on(own).times_out();
                let w = b.d.wait(*main, 1.009 + at, 10.001 + at, "poll").on(*told).stack(stack);
                w.by(receiver, "write", *told);
            } else {
                b.d.wait(receiver, 1.024 + at, 20.0, "poll").on(own).open();
                b.d.wait(*main, 1.009 + at, 20.0, "poll").on(*told).stack(stack).open();
                b.d.hold(b.daemon, receiver, own, Relation::Peer, 3.0);
            }
        }
        if over {
            b.waits(0, 1.001, 10.006);
            b.send(1, 0, 10.003);
        } else {
            b.d.wait(call, 1.001, 20.0, "poll").on(b.ends[0].1).open();
            b.d.hold(b.daemon, call, b.ends[0].1, Relation::Peer, 3.0);
        }
        let r = b.diagnose("^call ");
        let of = |name: &str| r.circle.iter().any(|i| r.slice[*i].process == name);
        assert!(of("first") && of("second"), "{over}: {r:#?}");
        assert!(r.root_causes[0].why.starts_with("circular wait (deadlock"), "{r:#?}");
        assert!(r.questions.is_empty());
    }
}
