//! How the kernel schedules a thread, where that is not as usual.

use serde::{Deserialize, Serialize};

/// What was set for a thread by `chrt`, `nice`, `taskset`, a cpuset or the like (sched(7)), as it was when the recorder looked.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Scheduling {
    /// Policy, by the kernel's numbers (`SCHED_*` of `linux/sched.h`): 0 is the usual one.
    pub policy: u8,
    /// Nice value, -20 (first) to 19; 0 is the usual one.
    pub nice: i8,
    /// Priority of a real-time policy, 1 to 99; 0 of others.
    pub priority: u8,
    /// The CPUs that it may use, as the kernel lists them (`0-3,8`); empty where it may use all.
    pub cpus: String,
}

/// Policies of `linux/sched.h`.
const FIFO: u8 = 1;
const RR: u8 = 2;
const BATCH: u8 = 3;
const IDLE: u8 = 5;
const DEADLINE: u8 = 6;

impl Scheduling {
    /// Is it what every thread has of which nobody set anything?
    pub fn is_usual(&self) -> bool {
        *self == Self::default()
    }

    /// `comes last (SCHED_IDLE), may use CPU 1 only`; empty where all is as usual.
    pub fn words(&self) -> String {
        let mut all = Vec::new();
        match self.policy {
            0 => {}
            FIFO => all.push(format!("goes first (SCHED_FIFO {})", self.priority)),
            RR => all.push(format!("goes first (SCHED_RR {})", self.priority)),
            DEADLINE => all.push("goes first (SCHED_DEADLINE)".to_owned()),
            IDLE => all.push("comes last (SCHED_IDLE)".to_owned()),
            BATCH => all.push("has SCHED_BATCH".to_owned()),
            other => all.push(format!("has scheduling policy {other}")),
        }
        // Other policies have no use for it.
        if self.nice != 0 && matches!(self.policy, 0 | BATCH) {
            all.push(format!("has nice {}", self.nice));
        }
        if !self.cpus.is_empty() {
            let s = if self.cpus.bytes().all(|b| b.is_ascii_digit()) { "" } else { "s" };
            all.push(format!("may use CPU{s} {} only", self.cpus));
        }
        all.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_as_usual_is_told() {
        let told = |policy, nice, priority, cpus: &str| {
            Scheduling { policy, nice, priority, cpus: cpus.into() }.words()
        };
        assert_eq!(told(0, 0, 0, ""), "");
        assert_eq!(told(5, 19, 0, "1"), "comes last (SCHED_IDLE), may use CPU 1 only");
        assert_eq!(told(0, -5, 0, "0-3,8"), "has nice -5, may use CPUs 0-3,8 only");
        assert_eq!(told(1, 0, 50, ""), "goes first (SCHED_FIFO 50)");
        assert_eq!(told(2, 0, 1, ""), "goes first (SCHED_RR 1)");
        assert_eq!(told(3, 4, 0, ""), "has SCHED_BATCH, has nice 4");
        assert_eq!(told(6, 0, 0, ""), "goes first (SCHED_DEADLINE)");
        assert_eq!(told(9, 0, 0, ""), "has scheduling policy 9");
        assert!(Scheduling::default().is_usual());
        assert!(!Scheduling { nice: 1, ..Scheduling::default() }.is_usual());
    }
}
