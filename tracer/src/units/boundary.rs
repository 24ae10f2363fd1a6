//! Waits between two units of an event loop, told by their stacks.

use super::waits::Wait;
use pg_event::{ModuleId, Sysno};

/// The way from an event loop to a wait for its next unit. `M` names modules: a recording's number of them, or what a
/// profile and a running process have in common. What is compared are the places of frames in the loop's module, and
/// which modules the way goes through; places in other modules (the C library) differ from machine to machine.
///
/// Where a frame is: address of the call's last byte (the return address less one, also of the instruction behind the
/// system call, when that is in the innermost frame), as the module's file counts; a line in a file of Python.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BoundaryPath<M = ModuleId> {
    /// Module and place of each frame, from the loop's function inwards.
    pub frames: Vec<(M, u64)>,
    /// What it waited in.
    pub syscall: Sysno,
    /// What it waited for.
    pub wait: Wait,
    /// How many such waits there were.
    pub waits: u64,
    /// Set where the loop takes connections, and this is a wait within a turn for the next request of one.
    pub request: Option<RequestLoop<M>>,
}

/// A loop within a turn of an event loop, of which each turn serves one request of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestLoop<M = ModuleId> {
    /// Its module; places of frames in there are compared, too.
    pub module: M,
    /// Which of those frames is the loop's own, the outermost being 0: behind its call a request has come. `None` where
    /// several loops are around the wait, and none was proven to turn from request to request.
    pub turn: Option<usize>,
}

impl<M: PartialEq> BoundaryPath<M> {
    /// Places of the frames in the module of the loop, from its function inwards.
    pub fn own(&self) -> impl DoubleEndedIterator<Item = u64> + '_ {
        own(&self.frames)
    }

    /// The modules on the way, each once for frames that follow each other.
    pub fn modules(&self) -> impl Iterator<Item = &M> + '_ {
        runs(self.frames.iter())
    }

    /// Of a wait for the next request: places of the frames in the module of the loop of requests.
    pub fn of_request(&self) -> impl DoubleEndedIterator<Item = u64> + '_ {
        let module = self.request.as_ref().map(|r| &r.module);
        self.frames.iter().filter(move |f| Some(&f.0) == module).map(|f| f.1)
    }

    /// Do both know the same waits again?
    pub fn is_like(&self, other: &Self) -> bool {
        self.syscall == other.syscall
            && self.own().eq(other.own())
            && self.modules().eq(other.modules())
            && self.request.as_ref().map(|r| &r.module) == other.request.as_ref().map(|r| &r.module)
            && self.of_request().eq(other.of_request())
    }

    /// The number of the loop's frame in a stack, the innermost being 0, if a wait with this stack is the one that the
    /// path leads to.
    fn leads_to(&self, stack: &[(M, u64)], syscall: Sysno) -> Option<usize> {
        let module = &self.frames.first()?.0;
        if self.syscall != syscall {
            return None;
        }
        let mut here = stack.iter().enumerate().filter(|(_, f)| f.0 == *module);
        let mut last = None;
        for place in self.own().rev() {
            let (depth, frame) = here.next()?;
            if frame.1 != place {
                return None;
            }
            last = Some(depth);
        }
        let last = last?;
        if let Some(request) = &self.request {
            let there = stack[..=last].iter().rev().filter(|f| f.0 == request.module).map(|f| f.1);
            if !there.eq(self.of_request()) {
                return None;
            }
        }
        let there = runs(stack[..=last].iter().rev());
        there.eq(self.modules()).then_some(last)
    }
}

/// The modules that frames go through, each once for frames that follow each other.
pub(super) fn runs<'a, M: PartialEq + 'a>(
    frames: impl Iterator<Item = &'a (M, u64)>,
) -> impl Iterator<Item = &'a M> {
    let mut before = None;
    frames.map(|f| &f.0).filter(move |&m| before.replace(m) != Some(m))
}

/// Places of those frames that are in the module of the first.
pub(super) fn own<M: PartialEq>(frames: &[(M, u64)]) -> impl DoubleEndedIterator<Item = u64> + '_ {
    frames.iter().filter(|f| f.0 == frames[0].0).map(|f| f.1)
}

/// Is a wait one between two units? `stack`: module and place of each frame, the innermost first; places as
/// [`BoundaryPath`] has them. All frames from the loop's function inwards are compared, as it says. Returns which of the
/// paths it is, and the number of the loop's frame in the stack.
pub fn is_boundary<M: PartialEq>(
    stack: &[(M, u64)],
    syscall: Sysno,
    paths: &[BoundaryPath<M>],
) -> Option<(usize, usize)> {
    paths.iter().enumerate().find_map(|(i, p)| Some((i, p.leads_to(stack, syscall)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLL: Sysno = Sysno(7);
    const FUTEX: Sysno = Sysno(202);

    fn path(frames: &[(&'static str, u64)], syscall: Sysno) -> BoundaryPath<&'static str> {
        BoundaryPath { frames: frames.into(), syscall, wait: Wait::Input, waits: 1, request: None }
    }

    #[test]
    fn a_wait_for_the_next_request_is_told_by_the_calls_of_the_loop_of_requests_as_well() {
        let way = [("mpm", 10), ("httpd", 5), ("httpd", 6), ("apr", 3), ("libc", 1)];
        let request = Some(RequestLoop { module: "httpd", turn: Some(1) });
        let server = [BoundaryPath { request, ..path(&way, POLL) }];
        let of = |httpd: u64| {
            let stack = [("libc", 9), ("apr", 4), ("httpd", httpd), ("httpd", 5), ("mpm", 10), ("libc", 2)];
            is_boundary(&stack, POLL, &server)
        };
        // The rest of a request is read from elsewhere in the same module.
        assert_eq!((of(6), of(7)), (Some((0, 4)), None));
        assert!(!server[0].is_like(&path(&way, POLL)) && server[0].is_like(&server[0].clone()));
    }

    #[test]
    fn places_in_the_loops_module_and_modules_are_compared() {
        let server = [path(&[("server", 10), ("server", 20), ("libc", 1)], POLL)];
        let of = |stack: &[(&'static str, u64)], call| is_boundary(stack, call, &server);
        // Another C library, and frames around the loop.
        let stack = [("libc", 9), ("libc", 8), ("server", 20), ("server", 10), ("server", 5), ("libc", 2)];
        assert_eq!(of(&stack, POLL), Some((0, 3)));
        assert_eq!(of(&stack, FUTEX), None);
        // Another library on the way, or a frame more of the server.
        assert_eq!(of(&[("libc", 9), ("libdb", 3), ("server", 20), ("server", 10)], POLL), None);
        assert_eq!(of(&[("libc", 9), ("server", 20), ("libev", 3), ("server", 10)], POLL), None);
        assert_eq!(of(&[("libc", 9), ("server", 30), ("server", 20), ("server", 10)], POLL), None);
        assert_eq!(of(&[("libc", 9), ("server", 21), ("server", 10)], POLL), None);
        assert_eq!(of(&[("libc", 9), ("server", 20), ("server", 11)], POLL), None);
        // Cut off before the loop.
        assert_eq!(of(&[("libc", 9), ("server", 20)], POLL), None);
        assert_eq!(of(&[], POLL), None);
    }

    #[test]
    fn the_path_that_fits() {
        let paths =
            [path(&[("a", 1), ("a", 2)], POLL), path(&[("a", 1), ("libc", 3)], FUTEX), path(&[], POLL)];
        assert_eq!(is_boundary(&[("libc", 7), ("a", 1)], FUTEX, &paths), Some((1, 1)));
        assert_eq!(is_boundary(&[("a", 2), ("a", 1)], POLL, &paths), Some((0, 1)));
    }
}
