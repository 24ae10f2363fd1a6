//! What each act of a script does: the waits it begins, the wake-ups it causes, the messages it sends.

use super::{COST, Due, Machine, Mode};
use crate::sim::draw::call;
use crate::sim::script::{Act, Asking};
use pg_event::{Direction, IpcUse, Kind, ObjectId, ObjectKind, OffCpu, OffState, StackId, Sysno, ThreadId};

/// The channels of a poll.
pub(super) fn polled(first: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |i| first + 2 * i)
}

impl Machine {
    fn waits(&mut self, c: usize, t: usize, syscall: &str, object: ObjectId) {
        let mut off = OffCpu::new(self.now, 0, OffState::Interruptible);
        off.syscall = call(syscall);
        off.object = object;
        off.timeout = u64::MAX;
        self.tasks[t].lock = false;
        self.leave(c, t, off);
    }

    fn wake_through(&mut self, t: usize, by: usize, syscall: Sysno, object: ObjectId) {
        let off = &mut self.tasks[t].off;
        (off.waker_syscall, off.waker_object) = (syscall, object);
        self.wake(t, Some(by));
    }

    fn channel_ends(&self, n: usize) -> (ObjectId, ObjectId) {
        let writer = ObjectId((self.first_channel + n * 2) as u32);
        let pipe = self.catalog.object(writer).is_some_and(|o| o.kind == ObjectKind::Pipe);
        (writer, if pipe { writer } else { ObjectId(writer.0 + 1) })
    }

    fn message(&mut self, t: usize, object: ObjectId, direction: Direction, bytes: u64, position: u64) {
        if self.setup.messages {
            let first = self.now;
            self.emit(t, Kind::Ipc(IpcUse { object, direction, count: 1, bytes, first, position }));
        }
    }

    /// A watchpoint's record.
    fn access(&mut self, t: usize, flag: usize, write: bool) {
        if self.setup.flags {
            let object = ObjectId((self.first_flag + flag) as u32);
            let value = self.flags[flag];
            self.emit(t, Kind::DataFlag { object, value, write, stack: StackId::NONE });
        }
    }

    pub(super) fn effect(&mut self, c: usize, t: usize) {
        let Some(act) = self.tasks[t].effect.take() else { return };
        let futex = call("futex");
        match act {
            Act::Compute(_) => {}
            Act::Lock(n) if self.mutexes[n].owner.is_none() => self.mutexes[n].owner = Some(t),
            Act::Lock(n) => {
                self.mutexes[n].waiters.push_back(t);
                self.waits(c, t, "futex", ObjectId(n as u32));
                (self.tasks[t].off.op, self.tasks[t].off.value) = (128, 2);
                self.tasks[t].lock = true;
            }
            Act::Unlock(n) => {
                let next = self.mutexes[n].waiters.pop_front();
                self.mutexes[n].owner = next;
                if let Some(w) = next {
                    self.wake_through(w, t, futex, ObjectId(n as u32));
                }
            }
            Act::Wait(n) => {
                let object = ObjectId((self.mutexes.len() + n) as u32);
                let condition = &mut self.conditions[n];
                if condition.signals > 0 {
                    condition.signals -= 1;
                } else {
                    condition.waiters.push_back(t);
                    self.waits(c, t, "futex", object);
                    self.tasks[t].off.op = 137;
                }
            }
            Act::Signal(n) => {
                let object = ObjectId((self.mutexes.len() + n) as u32);
                match self.conditions[n].waiters.pop_front() {
                    Some(w) => self.wake_through(w, t, futex, object),
                    None => self.conditions[n].signals += 1,
                }
            }
            Act::Send(n, bytes) => {
                let (writer, _) = self.channel_ends(n);
                let channel = &mut self.channels[n];
                if channel.bytes > 0 && channel.bytes + bytes > self.setup.capacity {
                    channel.writers.push_back(t);
                    self.waits(c, t, "write", writer);
                    self.tasks[t].effect = Some(act);
                    return;
                }
                channel.bytes += bytes;
                channel.sent += bytes;
                let position = channel.sent;
                let reader = channel.readers.pop_front();
                self.message(t, writer, Direction::Send, bytes, position);
                if let Some(r) = reader {
                    self.wake_through(r, t, call("write"), writer);
                }
            }
            Act::Receive(n) => {
                let (_, reader) = self.channel_ends(n);
                let channel = &mut self.channels[n];
                if channel.bytes == 0 {
                    channel.readers.push_back(t);
                    self.waits(c, t, "read", reader);
                    // It tries again when it is on a CPU.
                    self.tasks[t].effect = Some(act);
                    self.tasks[t].left = 1;
                    return;
                }
                let bytes = std::mem::take(&mut channel.bytes);
                channel.received += bytes;
                let position = channel.received;
                let writer = channel.writers.pop_front();
                self.message(t, reader, Direction::Receive, bytes, position);
                if let Some(w) = writer {
                    self.tasks[w].left = 1;
                    self.wake_through(w, t, call("read"), reader);
                }
            }
            Act::Poll(first, count) => {
                for n in polled(first, count) {
                    self.channels[n].readers.retain(|r| *r != t);
                }
                if polled(first, count).any(|n| self.channels[n].bytes > 0) {
                    return;
                }
                for n in polled(first, count) {
                    self.channels[n].readers.push_back(t);
                }
                let set = self.polls.iter().position(|p| *p == (first, count)).unwrap_or(0);
                self.waits(c, t, "epoll_wait", ObjectId((self.first_poll + set) as u32));
                // It looks again when it is on a CPU.
                self.tasks[t].effect = Some(act);
                self.tasks[t].left = 1;
            }
            Act::Take(n, skip) if self.channels[n].bytes == 0 => {
                let acts = self.tasks[t].script.acts.len();
                self.tasks[t].next = (self.tasks[t].next + skip).min(acts);
            }
            Act::Take(n, _) => {
                self.tasks[t].effect = Some(Act::Receive(n));
                self.effect(c, t);
            }
            Act::TakeAll(first, count) => {
                for n in polled(first, count).filter(|n| self.channels[*n].bytes > 0).collect::<Vec<_>>() {
                    self.tasks[t].taken.push_back(n);
                    self.tasks[t].effect = Some(Act::Receive(n));
                    self.effect(c, t);
                }
            }
            Act::AnswerAll(bytes) => {
                if let Some(n) = self.tasks[t].taken.pop_front() {
                    self.tasks[t].effect = Some(Act::Send(n + 1, bytes));
                    self.effect(c, t);
                    // The next one, as far as this one was sent at once.
                    if self.tasks[t].effect.is_none() && !self.tasks[t].taken.is_empty() {
                        self.tasks[t].effect = Some(act);
                        self.tasks[t].left = COST;
                    }
                }
            }
            Act::Sleep(n) => {
                self.waits(c, t, "clock_nanosleep", ObjectId::NONE);
                self.tasks[t].off.timeout = n;
                self.later(self.now + n.max(1), Due::Timer(t));
            }
            Act::Spawn(n) => {
                if self.tasks.get(n).is_some_and(|x| x.mode == Mode::NotBegun) {
                    let child = ThreadId(n as u32);
                    self.catalog.threads[n].start = self.now;
                    self.emit(t, Kind::Spawn { child });
                    self.tasks[n].mode = Mode::Ready;
                    self.tasks[n].off = OffCpu::new(self.now, self.now, OffState::Runnable);
                    self.ready.push_back(n);
                }
            }
            Act::Join(n) => {
                if self.tasks.get(n).is_some_and(|x| x.mode != Mode::Ended && n != t) {
                    self.joiners[n].push(t);
                    self.waits(c, t, "wait4", ObjectId::NONE);
                }
            }
            Act::Set(n, value) => {
                self.flags[n] = value;
                self.access(t, n, true);
            }
            Act::Ask(n, value, how) => {
                self.access(t, n, false);
                if self.flags[n] == value {
                    return;
                }
                self.tasks[t].effect = Some(act);
                match how {
                    Asking::Spin(each) => self.tasks[t].left = each.max(1),
                    Asking::Yield(each) => {
                        self.tasks[t].left = each.max(1);
                        if !self.ready.is_empty() {
                            self.put_off(c, t);
                            self.tasks[t].off.syscall = call("sched_yield");
                        }
                    }
                    Asking::Sleep(each) => {
                        self.tasks[t].left = 1;
                        self.waits(c, t, "clock_nanosleep", ObjectId::NONE);
                        self.tasks[t].off.timeout = each;
                        self.later(self.now + each.max(1), Due::Timer(t));
                    }
                }
            }
            Act::Yield(n) => {
                let done = &mut self.tasks[t].yields;
                *done += 1;
                let more = *done < n;
                if more {
                    self.tasks[t].effect = Some(act);
                    self.tasks[t].left = COST;
                } else {
                    *done = 0;
                }
                if !self.ready.is_empty() {
                    self.put_off(c, t);
                    self.tasks[t].off.syscall = call("sched_yield");
                }
            }
        }
    }
}
