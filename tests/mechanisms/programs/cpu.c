/* Threads that want a CPU and do not get one: a peer of higher priority on the same CPU, a quota. */
#include "truth.h"
#include <sched.h>
#include <sys/resource.h>

static double used(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static volatile unsigned long work;

static __attribute__((noinline)) void compute(double ms) {
  while (used() < ms) {
    for (int i = 0; i < 10000; i++) work = work * 31 + 7;
  }
}

/* Everybody on CPU 0; the bully may preempt whom it likes. */
static void preempted(void) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(0, &one);
  if (sched_setaffinity(0, sizeof one, &one)) {
    lacks("runq.weak", "no CPU 0 for this process");
    return;
  }
  int fds[2];
  MUST(pipe(fds) == 0);
  if (fork() == 0) {
    close(fds[0]);
    role("runq.weak");
    nap(SOON);
    compute(60);
    put(fds[1]);
    nap(SOON);
    _exit(0);
  }
  if (fork() == 0) {
    close(fds[0]);
    close(fds[1]);
    if (setpriority(PRIO_PROCESS, 0, -20)) {
      lacks("runq.weak", "not allowed to be of higher priority");
      _exit(0);
    }
    role("runq.bully");
    nap(SOON);
    compute(1800);
    nap(SOON);
    _exit(0);
  }
  close(fds[1]);
  role("runq.reader");
  get(fds[0]);
  nap(SOON);
  everybody();
}

/* How often the group was held back since its quota was used up. */
static int throttled(const char *group) {
  char path[300], text[512] = {0};
  snprintf(path, sizeof path, "%s/cpu.stat", group);
  int fd = open(path, O_RDONLY);
  MUST(fd >= 0 && read(fd, text, sizeof text - 1) > 0);
  close(fd);
  char *number = strstr(text, "nr_throttled ");
  MUST(number);
  return atoi(number + strlen("nr_throttled "));
}

/* 10 ms of a CPU in 100 ms, until that was too little often enough. Others come after the group: whoever does not
 * get 10 ms from them is not held back by the quota. */
static void quota(void) {
  char group[200];
  snprintf(group, sizeof group, "/sys/fs/cgroup/cpu/pg-tui-mechanism-%d", getpid());
  int ok = mkdir(group, 0755) == 0 && !set(group, "cpu.cfs_period_us", "100000") && !set(group, "cpu.cfs_quota_us", "10000") &&
           !set(group, "cpu.shares", "262144");
  if (!ok) {
    rmdir(group);
    set("/sys/fs/cgroup", "cgroup.subtree_control", "+cpu");
    snprintf(group, sizeof group, "/sys/fs/cgroup/pg-tui-mechanism-%d", getpid());
    ok = mkdir(group, 0755) == 0 && !set(group, "cpu.max", "10000 100000") && !set(group, "cpu.weight", "10000");
  }
  if (!ok) {
    rmdir(group);
    lacks("quota.limited", "no control group with a quota of CPU time can be made");
    return;
  }
  int fds[2];
  MUST(pipe(fds) == 0);
  if (fork() == 0) {
    close(fds[0]);
    role("quota.limited");
    char number[20];
    snprintf(number, sizeof number, "%d", getpid());
    MUST(!set(group, "cgroup.procs", number));
    for (double ms = 5; throttled(group) < 14 && ms < 2000; ms += 5) compute(ms);
    put(fds[1]);
    _exit(0);
  }
  close(fds[1]);
  role("quota.reader");
  get(fds[0]);
  nap(SOON);
  everybody();
  rmdir(group);
}

int main(void) {
  process(preempted);
  process(quota);
  return everybody();
}
