//! Clients of servers that take their time.

use crate::truth::{Truth, check};
use pg_event::{ObjectKind, Relation};
use pg_graph::EdgeKind;

fn server(test: &str, role: &str, holds: impl Fn(&Truth)) {
    check(test, ("servers", ""), role, holds);
}

#[test]
fn a_tcp_answer() {
    server("a_tcp_answer", "tcp.client", |t| {
        let w = t.wait("tcp.client");
        w.on(ObjectKind::Tcp).ended_by("tcp.server", EdgeKind::Ipc, None);
        w.held_by("tcp.server", Relation::Peer).caused_by("tcp.server");
    });
}

#[test]
fn a_connection_that_nobody_accepts() {
    server("a_connection_that_nobody_accepts", "backlog.client", |t| {
        let w = t.wait("backlog.client");
        w.on(ObjectKind::Tcp).ended_by("backlog.server", EdgeKind::Ipc, None);
        w.held_by("backlog.server", Relation::Listens).caused_by("backlog.server");
    });
}

#[test]
fn a_full_tcp_connection() {
    server("a_full_tcp_connection", "tcpfull.writer", |t| {
        let w = t.wait("tcpfull.writer");
        w.on(ObjectKind::Tcp).ended_by("tcpfull.reader", EdgeKind::Ipc, None);
        w.held_by("tcpfull.reader", Relation::Peer).caused_by("tcpfull.reader");
    });
}

#[test]
fn a_client_to_come() {
    server("a_client_to_come", "accept.server", |t| {
        let w = t.wait("accept.server");
        w.on(ObjectKind::Tcp).ended_by("accept.client", EdgeKind::Ipc, None).innocent();
    });
}

#[test]
fn a_udp_answer() {
    server("a_udp_answer", "udp.client", |t| {
        let w = t.wait("udp.client");
        w.on(ObjectKind::Udp).ended_by("udp.server", EdgeKind::Ipc, None);
        w.held_by("udp.server", Relation::Peer).caused_by("udp.server");
    });
}

#[test]
fn a_full_queue_of_connections() {
    server("a_full_queue_of_connections", "connect.client", |t| {
        let w = t.wait("connect.client");
        w.on(ObjectKind::UnixStream).ended_by("connect.server", EdgeKind::Ipc, None);
        w.held_by("connect.server", Relation::Listens).caused_by("connect.server");
    });
}

#[test]
fn a_request_without_an_answer() {
    server("a_request_without_an_answer", "unanswered.clt", |t| {
        let w = t.wait("unanswered.clt");
        w.on(ObjectKind::UnixStream).over_its_own_connection().timed_out();
        w.held_by("unanswered.srv", Relation::Peer).caused_by("unanswered.srv");
    });
}
