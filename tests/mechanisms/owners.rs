//! Waits that nobody ends for long: who could, by the state of the system.

use crate::truth::{Truth, check};
use pg_event::{ObjectKind, OffState, Relation};

fn owner(test: &str, role: &str, holds: impl Fn(&Truth)) {
    check(test, ("owners", ""), role, holds);
}

#[test]
fn a_semaphore_that_another_process_took() {
    owner("a_semaphore_that_another_process_took", "semtaken.waiter", |t| {
        let w = t.wait("semtaken.waiter");
        w.on(ObjectKind::SysvIpc).held_by("semtaken.owner", Relation::Owns).caused_by("semtaken.owner");
    });
}

#[test]
fn a_semaphore_that_was_never_given_back() {
    owner("a_semaphore_that_was_never_given_back", "semlost.waiter", |t| {
        let w = t.wait("semlost.waiter");
        w.on(ObjectKind::SysvIpc).held_by("semlost.owner", Relation::Owns);
        w.caused_by("semlost.owner").says("never gave it back");
    });
}

#[test]
fn a_queue_whose_sender_sends_no_more() {
    owner("a_queue_whose_sender_sends_no_more", "msgsent.receiver", |t| {
        let w = t.wait("msgsent.receiver");
        w.on(ObjectKind::SysvIpc).held_by("msgsent.sender", Relation::Writes).caused_by("msgsent.sender");
    });
}

#[test]
fn a_posix_queue_that_is_open_for_writing() {
    owner("a_posix_queue_that_is_open_for_writing", "mqopen.receiver", |t| {
        let w = t.wait("mqopen.receiver");
        w.on(ObjectKind::SysvIpc).held_by("mqopen.sender", Relation::Writes).caused_by("mqopen.sender");
    });
}

#[test]
fn a_lease_on_a_file() {
    owner("a_lease_on_a_file", "lease.opener", |t| {
        t.caused_by("lease.opener", "lease.owner").passes("file-lock");
    });
}

#[test]
fn a_scanner_that_is_asked_before_a_file_is_opened() {
    owner("a_scanner_that_is_asked_before_a_file_is_opened", "permit.opener", |t| {
        let w = t.wait("permit.opener");
        w.held_by("permit.scanner", Relation::Serves).called("file-system").caused_by("permit.scanner");
    });
}

#[test]
fn a_job_in_the_background_that_reads_from_the_terminal() {
    owner("a_job_in_the_background_that_reads_from_the_terminal", "background.job", |t| {
        t.wait("background.job")
            .state(OffState::Stopped)
            .caused_by("background.job")
            .says("from the background");
    });
}

#[test]
fn a_terminal_whose_output_is_paused() {
    owner("a_terminal_whose_output_is_paused", "paused.writer", |t| {
        let w = t.wait("paused.writer");
        w.on(ObjectKind::Tty).held_by("paused.terminal", Relation::Peer);
        w.ended_for("paused.terminal").caused_by("paused.writer").says("output was paused (Ctrl-S");
    });
}
