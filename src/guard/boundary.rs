//! Which stacks of waits are boundaries of units: ways from a loop to its wait, and the judge that tells them.

use super::guarding::{Opened, find};
use pg_event::Sysno;
use pg_graph::units::{Boundary, LoopKey, RequestWay};
use pg_tracer::guards::{Guarded, Judge, Stacked};
use std::path::PathBuf;

/// A wait between two units, as stacks of the kernel show it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Way {
    /// The module that the loop runs in: its own or, of a loop of Python, the interpreter's.
    module: String,
    /// Places of its frames in there, the outermost first.
    calls: Vec<u64>,
    syscall: Sysno,
    /// The call that enters the C library, where it is another module's: of a loop of Python the one that it waits in may
    /// be a library of its own.
    pub wait: Option<(String, u64)>,
    /// Set of a wait for the next request of a connection.
    request: Option<RequestWay>,
}

impl Way {
    /// Where there is such a module. (A loop of Python also has ways by its lines, which no such stack shows.)
    pub fn of(key: &LoopKey, b: &Boundary, binaries: &[Opened]) -> Option<Self> {
        let module = b.native.as_ref().map_or(&key.build_id, |n| &n.interpreter);
        find(binaries, module)?;
        if let Some(request) = &b.request {
            find(binaries, &request.module)?;
        }
        let wait = b.native.as_ref().map(|n| (n.module.clone(), n.call));
        let (calls, request) = (b.calls.clone(), b.request.clone());
        Some(Self { module: module.clone(), calls, syscall: b.syscall, wait, request })
    }

    /// Behind the innermost call, or the one with which a request has come: the file and place that it returns to.
    pub fn behind(&self, binaries: &[Opened]) -> Option<(PathBuf, u64)> {
        let own = || Some((&self.module, *self.calls.last()?));
        let (module, call) = match &self.request {
            Some(r) => (&r.module, *r.calls.get(r.turn? as usize)?),
            None => self.wait.as_ref().map(|w| (&w.0, w.1)).or_else(own)?,
        };
        let binary = &find(binaries, module)?.binary;
        Some((binary.file(), binary.offset(call.checked_add(1)?)?))
    }

    /// The loop's frame in a stack, and the one that made the innermost call, if this is it.
    fn leads_to(&self, s: &Stacked) -> Option<(usize, usize)> {
        if s.syscall.is_some_and(|nr| nr != self.syscall) {
            return None;
        }
        if let Some(request) = &self.request {
            return self.leads_to_request(s, request);
        }
        let own = || s.frames.iter().enumerate().filter(|(_, f)| f.module == self.module);
        let turn = match &self.wait {
            Some((module, call)) => {
                let (turn, f) = s.frames.iter().enumerate().find(|(_, f)| f.module == *module)?;
                (f.address == *call).then_some(turn)?
            }
            None => own().next()?.0,
        };
        let here = own().take(self.calls.len());
        let (frame, _) = here.clone().last()?;
        here.map(|f| f.1.address).eq(self.calls.iter().rev().copied()).then_some((frame, turn))
    }

    /// The same of a wait for the next request: of all frames from the loop's inwards, the innermost is that of the loop of
    /// requests where its call just returned.
    fn leads_to_request(&self, s: &Stacked, request: &RequestWay) -> Option<(usize, usize)> {
        let turn = request.turn.map(|t| t as usize);
        // As far inwards as the stack goes.
        let (requests, own) = if s.syscall.is_some() {
            (request.calls.as_slice(), self.calls.as_slice())
        } else {
            let here = request.calls.get(..=turn?)?;
            (here, if request.module == self.module { here } else { &self.calls })
        };
        let mut here = s.frames.iter().enumerate().filter(|(_, f)| f.module == self.module);
        let mut frame = None;
        for call in own.iter().rev() {
            let (number, f) = here.next()?;
            frame = (f.address == *call).then_some(number);
            frame?;
        }
        let frame = frame?;
        let within = || s.frames[..=frame].iter().enumerate().filter(|(_, f)| f.module == request.module);
        if !within().map(|f| f.1.address).eq(requests.iter().rev().copied()) {
            return None;
        }
        // Counted from the outermost; without one no probe stands there.
        let inner = requests.len().checked_sub(turn.map_or(requests.len(), |t| t + 1))?;
        let at = within().nth(inner)?.0;
        (s.syscall.is_some() || at == 0).then_some((frame, at))
    }
}

/// The code of a loop, and of its function around it.
pub(super) struct Body {
    /// The build-id of its module.
    pub module: String,
    /// Is a call, by its address, within the loop? `None`: it is another function's.
    pub turns: Box<dyn Fn(u64) -> Option<bool> + Send>,
}

impl Body {
    /// A wait that the loop's function has called for outside of the loop: between two connections, say, of which each has a
    /// loop of commands. Not where a function that it called waits, which may be work; nor within a turn that called for the
    /// function once more.
    fn left(&self, of: usize, s: &Stacked) -> Option<Guarded> {
        s.syscall?;
        let mut own = s.frames.iter().enumerate().filter(|(_, f)| f.module == self.module);
        let (frame, _) = own.next().filter(|(_, f)| (self.turns)(f.address) == Some(false))?;
        let within = own.any(|(_, f)| (self.turns)(f.address) == Some(true));
        (!within).then_some(Guarded { of, frame, turn: frame, left: true })
    }
}

/// What is known of a loop.
pub(super) struct Judged {
    pub ways: Vec<Way>,
    pub body: Option<Body>,
}

/// Tells by the calls of each loop in its own module; the C library's places differ from machine to machine. Of several
/// loops the outermost: a function that many call to wait may have a loop of its own, and what one that takes connections
/// knows for the next request another may turn around.
pub(super) fn judge(loops: Vec<Judged>) -> Judge {
    Box::new(move |s: &Stacked| {
        let told = loops.iter().enumerate().filter_map(|(of, l)| {
            let (way, (frame, turn)) = l.ways.iter().find_map(|w| Some((w, w.leads_to(s)?)))?;
            Some((way.request.is_some(), Guarded { of, frame, turn, left: false }))
        });
        let outermost = told.reduce(|a, b| if (b.1.frame, b.0) > (a.1.frame, a.0) { b } else { a });
        let outside = || loops.iter().enumerate().find_map(|(of, l)| l.body.as_ref()?.left(of, s));
        outermost.map(|(_, guarded)| guarded).or_else(outside)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pg_tracer::guards::Spot;

    const POLL: Sysno = Sysno(7);

    fn told(frames: &[(&str, u64)], syscall: Option<Sysno>) -> Option<(usize, usize, usize)> {
        let way = |calls: &[u64]| Way {
            module: "app".into(),
            calls: calls.into(),
            syscall: POLL,
            wait: None,
            request: None,
        };
        // The interpreter's call runs the loop; the wait is one of a library of it.
        let python = Way {
            module: "python".into(),
            calls: [50, 40].into(),
            syscall: POLL,
            wait: Some(("select.so".into(), 7)),
            request: None,
        };
        let loops = [vec![way(&[30, 20]), way(&[31])], vec![python]].map(bare);
        let spot = |f: &(&str, u64)| Spot { module: f.0.into(), address: f.1, sp: 0 };
        let frames = frames.iter().map(spot).collect();
        let found = judge(loops.into())(&Stacked { tid: 1, pid: 1, syscall, frames })?;
        Some((found.of, found.frame, found.turn))
    }

    fn bare(ways: Vec<Way>) -> Judged {
        Judged { ways, body: None }
    }

    #[test]
    fn boundaries_are_told_by_the_programs_own_calls() {
        // libc waits for `poll`, which is called at 20 by what is called at 30.
        assert_eq!(told(&[("libc", 1), ("app", 20), ("app", 30), ("app", 9)], Some(POLL)), Some((0, 2, 1)));
        assert_eq!(told(&[("libc", 1), ("app", 20), ("lib", 5), ("app", 30)], Some(POLL)), Some((0, 3, 1)));
        assert_eq!(told(&[("libc", 1), ("app", 31), ("app", 9)], Some(POLL)), Some((0, 1, 1)));
        // Another call, another place, cut off.
        assert_eq!(told(&[("libc", 1), ("app", 20), ("app", 30)], Some(Sysno(0))), None);
        assert_eq!(told(&[("libc", 1), ("app", 21), ("app", 30)], Some(POLL)), None);
        assert_eq!(told(&[("libc", 1), ("app", 40), ("app", 20), ("app", 30)], Some(POLL)), None);
        assert_eq!(told(&[("libc", 1), ("app", 20)], Some(POLL)), None);
        assert_eq!(told(&[("libc", 1)], Some(POLL)), None);
        // Behind the call nothing is known of the system call.
        assert_eq!(told(&[("app", 20), ("app", 30)], None), Some((0, 1, 0)));
        assert_eq!(told(&[("app", 20), ("app", 29)], None), None);
    }

    #[test]
    fn a_wait_of_the_loops_function_outside_of_the_loop_is_of_no_unit() {
        // The loop is from 20 to 29, its function from 10 to 49.
        let turns = |at: u64| (10..50).contains(&at).then_some((20..30).contains(&at));
        let of = |frames: &[(&str, u64)], syscall| {
            let way =
                Way { module: "app".into(), calls: [20].into(), syscall: POLL, wait: None, request: None };
            let body = Body { module: "app".into(), turns: Box::new(turns) };
            let spot = |f: &(&str, u64)| Spot { module: f.0.into(), address: f.1, sp: 0 };
            let frames = frames.iter().map(spot).collect();
            let judged = vec![Judged { ways: vec![way], body: Some(body) }];
            let found = judge(judged)(&Stacked { tid: 1, pid: 1, syscall, frames })?;
            Some((found.of, found.frame, found.left))
        };
        let futex = Some(Sysno(202));
        // Parked between two connections; before the first.
        assert_eq!(of(&[("libc", 1), ("app", 40), ("app", 9)], futex), Some((0, 1, true)));
        assert_eq!(of(&[("libc", 1), ("app", 10)], futex), Some((0, 1, true)));
        // The boundary; a sleep within a turn, called by the loop's function itself; work of what is called outside.
        assert_eq!(of(&[("libc", 1), ("app", 20), ("app", 9)], Some(POLL)), Some((0, 1, false)));
        assert_eq!(of(&[("libc", 1), ("app", 25), ("app", 9)], futex), None);
        assert_eq!(of(&[("libc", 1), ("app", 90), ("app", 40), ("app", 9)], futex), None);
        // Within a turn that called for the function once more; no wait.
        assert_eq!(of(&[("libc", 1), ("app", 40), ("app", 90), ("app", 25)], futex), None);
        assert_eq!(of(&[("app", 40), ("app", 9)], None), None);
    }

    #[test]
    fn waits_for_the_next_request_are_told_by_the_loop_of_requests_as_well() {
        let way = |calls: &[u64], request| Way {
            module: "mpm".into(),
            calls: calls.into(),
            syscall: POLL,
            wait: None,
            request,
        };
        let request = |module: &str, calls: &[u64], turn| {
            Some(RequestWay { module: module.into(), calls: calls.into(), turn })
        };
        let loops = || {
            let accepts = way(&[30], None);
            let elsewhere = way(&[31], request("httpd", &[5, 6, 7], Some(1)));
            let closes = way(&[32], request("httpd", &[8, 9], None));
            // One loop in the other, in one function; and one that turns around nothing but requests.
            let own = way(&[40, 41, 42], request("mpm", &[40, 41, 42], Some(1)));
            [vec![way(&[40, 41, 42], None)], vec![accepts, elsewhere, closes, own]].map(bare)
        };
        let of = |frames: &[(&str, u64)], syscall| {
            let spot = |f: &(&str, u64)| Spot { module: f.0.into(), address: f.1, sp: 0 };
            let frames = frames.iter().map(spot).collect();
            let found = judge(loops().into())(&Stacked { tid: 1, pid: 1, syscall, frames })?;
            Some((found.of, found.frame, found.turn))
        };
        let next =
            [("libc", 1), ("apr", 2), ("httpd", 7), ("httpd", 6), ("httpd", 5), ("mpm", 31), ("mpm", 9)];
        assert_eq!(of(&next, Some(POLL)), Some((1, 5, 3)));
        // A request has come; something else has returned, or the same call elsewhere.
        assert_eq!(of(&next[3..], None), Some((1, 2, 0)));
        assert_eq!((of(&next[2..], None), of(&next[4..], None)), (None, None));
        // The rest of a request is read.
        let body = [("libc", 1), ("apr", 2), ("httpd", 7), ("httpd", 66), ("httpd", 5), ("mpm", 31)];
        assert_eq!((of(&body, Some(POLL)), of(&next, Some(Sysno(0)))), (None, None));
        // No loop was proven to turn there: only the wait is known.
        let close = [("libc", 1), ("httpd", 9), ("httpd", 8), ("mpm", 32)];
        assert_eq!(
            (of(&close, Some(POLL)), of(&close[1..], None), of(&close[2..], None)),
            (Some((1, 3, 1)), None, None)
        );
        let own = [("libc", 1), ("mpm", 42), ("mpm", 41), ("mpm", 40), ("mpm", 9)];
        assert_eq!((of(&own, Some(POLL)), of(&own[2..], None)), (Some((1, 3, 2)), Some((1, 1, 0))));
    }

    #[test]
    fn the_outermost_loop_is_told() {
        // One repeats the wait in the function that another calls to wait; which comes first does not matter.
        let way = |calls: &[u64]| {
            vec![Way { module: "app".into(), calls: calls.into(), syscall: POLL, wait: None, request: None }]
        };
        let of = |loops: [Vec<Way>; 2], frames: &[(&str, u64)]| {
            let spot = |f: &(&str, u64)| Spot { module: f.0.into(), address: f.1, sp: 0 };
            let frames = frames.iter().map(spot).collect();
            let found =
                judge(loops.map(bare).into())(&Stacked { tid: 1, pid: 1, syscall: Some(POLL), frames })?;
            Some((found.of, found.frame))
        };
        let session = [("libc", 1), ("app", 20), ("app", 30), ("app", 9)];
        assert_eq!(of([way(&[20]), way(&[30, 20])], &session), Some((1, 2)));
        assert_eq!(of([way(&[30, 20]), way(&[20])], &session), Some((0, 2)));
        // Who only repeats it keeps that.
        assert_eq!(of([way(&[20]), way(&[30, 20])], &[("libc", 1), ("app", 20), ("app", 40)]), Some((0, 1)));
    }

    #[test]
    fn boundaries_of_python_are_told_by_the_interpreters_calls() {
        let python = [("libc", 1), ("select.so", 7), ("python", 40), ("python", 50), ("python", 60)];
        assert_eq!(told(&python, Some(POLL)), Some((1, 3, 1)));
        // Where the wait call just returned.
        assert_eq!(told(&python[1..], None), Some((1, 2, 0)));
        // Another system call, another wait of that library, another way through the interpreter, none of the library.
        assert_eq!(told(&python, Some(Sysno(0))), None);
        let with = |i: usize, f| {
            let mut other = python;
            other[i] = f;
            other
        };
        assert_eq!(told(&with(1, ("select.so", 8)), Some(POLL)), None);
        assert_eq!(told(&with(3, ("python", 51)), Some(POLL)), None);
        assert_eq!(told(&with(1, ("time.so", 7)), Some(POLL)), None);
    }
}
