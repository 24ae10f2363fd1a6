/* Signals, children, tracers, frozen groups, locks on files. */
#include "truth.h"
#include <sys/file.h>
#include <sys/ptrace.h>

static void nothing(int n) { (void)n; }

/* `wait` ends when the other process sends SIGUSR1. */
static void signalled(void (*wait)(sigset_t *), char *waiter, char *sender) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  signal(SIGUSR1, nothing);
  pid_t to = getpid();
  if (fork() == 0) {
    role(sender);
    nap(HOLD);
    kill(to, SIGUSR1);
    nap(SOON);
    _exit(0);
  }
  role(waiter);
  wait(&set);
  nap(SOON);
  everybody();
}

static void by_pause(sigset_t *set) {
  (void)set;
  pause();
}

static void by_sigwait(sigset_t *set) {
  sigprocmask(SIG_BLOCK, set, NULL);
  int n;
  sigwait(set, &n);
}

static void paused(void) { signalled(by_pause, "pause.waiter", "pause.sender"); }
static void sigwaited(void) { signalled(by_sigwait, "sigwait.waiter", "sigwait.sender"); }

/* A process that will be stopped, and writes into a pipe later. */
static pid_t halted(const char *name, int *fds) {
  MUST(pipe(fds) == 0);
  pid_t child = fork();
  if (child == 0) {
    role(name);
    close(fds[0]);
    nap(SOON * 2);
    put(fds[1]);
    nap(SOON);
    _exit(0);
  }
  close(fds[1]);
  return child;
}

/* Stopped by a signal, continued by another process. */
static void stopped(void) {
  int fds[2];
  pid_t child = halted("stop.stopped", fds);
  if (fork() == 0) {
    close(fds[0]);
    role("stop.sender");
    nap(SOON);
    kill(child, SIGSTOP);
    nap(HOLD);
    kill(child, SIGCONT);
    nap(SOON);
    _exit(0);
  }
  role("stop.reader");
  get(fds[0]);
  nap(SOON);
  everybody();
}

/* A debugger keeps a program stopped. */
static void traced(void) {
  int fds[2];
  pid_t child = halted("ptrace.traced", fds);
  if (fork() == 0) {
    close(fds[0]);
    role("ptrace.tracer");
    nap(SOON);
    if (ptrace(PTRACE_SEIZE, child, 0, 0) || ptrace(PTRACE_INTERRUPT, child, 0, 0)) {
      lacks("ptrace.traced", "not allowed to trace a process of its own");
      _exit(0);
    }
    waitpid(child, NULL, __WALL);
    nap(HOLD);
    ptrace(PTRACE_DETACH, child, 0, 0);
    nap(SOON);
    _exit(0);
  }
  role("ptrace.reader");
  get(fds[0]);
  nap(SOON);
  everybody();
}

static const struct {
  const char *top, *file, *on, *off;
} ways[] = {{"/sys/fs/cgroup/unified", "cgroup.freeze", "1", "0"},
            {"/sys/fs/cgroup", "cgroup.freeze", "1", "0"},
            {"/sys/fs/cgroup/freezer", "freezer.state", "FROZEN", "THAWED"}};
enum { WAYS = sizeof ways / sizeof *ways };

/* A control group is frozen in one of the ways from `first` on. */
static void frozen_by(unsigned first, const char *asleep, const char *freezer, const char *reader) {
  char group[200], file[300], number[20];
  for (unsigned i = first; i < WAYS; i++) {
    snprintf(group, sizeof group, "%s/pg-tui-mechanism-%d", ways[i].top, getpid());
    if (mkdir(group, 0755)) continue;
    snprintf(file, sizeof file, "%s/%s", group, ways[i].file);
    if (access(file, W_OK)) {
      rmdir(group);
      continue;
    }
    int fds[2];
    pid_t child = halted(asleep, fds);
    snprintf(number, sizeof number, "%d", child);
    MUST(!set(group, "cgroup.procs", number));
    if (fork() == 0) {
      close(fds[0]);
      role(freezer);
      nap(SOON);
      MUST(!set(group, ways[i].file, ways[i].on));
      nap(HOLD);
      MUST(!set(group, ways[i].file, ways[i].off));
      nap(SOON);
      _exit(0);
    }
    role(reader);
    get(fds[0]);
    nap(SOON);
    everybody();
    rmdir(group);
    return;
  }
  lacks(reader, "no control group can be frozen here");
}

/* As `docker pause` does. */
static void frozen(void) { frozen_by(0, "freeze.frozen", "freeze.freezer", "freeze.reader"); }

/* In the older way whoever sleeps stays in its sleep. */
static void frozen_asleep(void) { frozen_by(WAYS - 1, "asleep.frozen", "asleep.freezer", "asleep.reader"); }

static void child_waited(void) {
  role("wait4.parent");
  if (fork() == 0) {
    role("wait4.child");
    nap(HOLD);
    _exit(0);
  }
  MUST(waitpid(-1, NULL, 0) > 0);
  nap(SOON);
}

/* Both sleep by the same instruction of the C library, and their stacks are of the same depth. */
static __attribute__((noinline)) void quick(void) {
  struct timespec t = {0, 20000000};
  nanosleep(&t, NULL);
  __asm__ volatile("" ::: "memory");
}

static __attribute__((noinline)) void tardy(void) {
  struct timespec t = {HOLD / 1000, HOLD % 1000 * 1000000};
  nanosleep(&t, NULL);
  __asm__ volatile("" ::: "memory");
}

static void two_callers(void) {
  role("callers.parent");
  if (fork() == 0) {
    role("callers.child");
    for (int i = 0; i < 5; i++) quick();
    tardy();
    _exit(0);
  }
  MUST(waitpid(-1, NULL, 0) > 0);
  nap(SOON);
}

static void child_by_waitid(void) {
  role("waitid.parent");
  pid_t child = fork();
  if (child == 0) {
    role("waitid.child");
    nap(HOLD);
    _exit(0);
  }
  siginfo_t i;
  MUST(waitid(P_PID, child, &i, WEXITED) == 0);
  nap(SOON);
}

/* As timeout(1) does: it sleeps until a signal comes, that of its child's end or another one. */
static void child_by_signal(void) {
  if (fork() != 0) {
    role("sigchld.outer");
    everybody();
    nap(SOON);
    return;
  }
  role("sigchld.parent");
  sigset_t set, before;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  sigprocmask(SIG_BLOCK, &set, &before);
  signal(SIGCHLD, nothing);
  if (fork() == 0) {
    role("sigchld.child");
    nap(HOLD);
    _exit(0);
  }
  sigsuspend(&before);
  MUST(wait(NULL) > 0);
  nap(SOON);
  _exit(0);
}

/* Within vfork(2) the parent waits until the child executes a program or ends. */
static void vforked(void) {
  role("vfork.parent");
  pid_t child = vfork();
  if (child == 0) {
    static const char begin[] = "fact vfork.child ";
    char line[64];
    int n = snprintf(line, sizeof line, "%s%d %d\n", begin, getpid(), getpid());
    if (write(1, line, n) != n) _exit(1);
    struct timespec t = {HOLD / 1000, HOLD % 1000 * 1000000L};
    nanosleep(&t, NULL);
    _exit(0);
  }
  waitpid(child, NULL, 0);
  nap(SOON);
}

static int fresh(const char *name) {
  char path[200];
  snprintf(path, sizeof path, "%s/%s", getenv("MECH_DIR"), name);
  int fd = open(path, O_CREAT | O_RDWR, 0600);
  MUST(fd >= 0);
  return fd;
}

/* One process takes the lock; another one waits for it, by an opening of its own. */
static void locked(const char *name, int (*lock)(int, int), char *waiter, char *owner) {
  int ready[2];
  MUST(pipe(ready) == 0);
  if (fork() == 0) {
    role(owner);
    int fd = fresh(name);
    MUST(lock(fd, 1) == 0);
    put(ready[1]);
    nap(HOLD);
    MUST(lock(fd, 0) == 0);
    nap(SOON);
    _exit(0);
  }
  get(ready[0]);
  role(waiter);
  MUST(lock(fresh(name), 1) == 0);
  nap(SOON);
  everybody();
}

static int by_flock(int fd, int take) { return flock(fd, take ? LOCK_EX : LOCK_UN); }

static int by_record(int fd, int take) {
  struct flock l = {.l_type = take ? F_WRLCK : F_UNLCK, .l_whence = SEEK_SET};
  return fcntl(fd, F_SETLKW, &l);
}

static int by_description(int fd, int take) {
  struct flock l = {.l_type = take ? F_WRLCK : F_UNLCK, .l_whence = SEEK_SET};
  return fcntl(fd, F_OFD_SETLKW, &l);
}

static void with_flock(void) { locked("flock", by_flock, "flock.waiter", "flock.owner"); }
static void with_fcntl(void) { locked("fcntl", by_record, "fcntl.waiter", "fcntl.owner"); }
static void with_ofd(void) { locked("ofd", by_description, "ofd.waiter", "ofd.owner"); }

/* One takes a lock again and again and has it for a while each time: no wait of the other one is long. */
static void convoy(void) {
  double end = now() + HOLD;
  int waits = fork() == 0;
  role(waits ? "convoy.waiter" : "convoy.owner");
  int fd = fresh("convoy");
  while (now() < end) {
    MUST(by_flock(fd, 1) == 0);
    if (!waits) {
      nap(60);
    }
    MUST(by_flock(fd, 0) == 0);
    nap(waits ? 1 : 3);
  }
  nap(SOON);
  if (waits) {
    _exit(0);
  }
  everybody();
}

/* The first thread of a program ends, and another one goes on. It has a lock and the end of a pipe, and is waited for. */
static int headless_pipe[2], headless_ready[2];

static void *goes_on(void *arg) {
  (void)arg;
  nap(SOON);
  role("headless.thread");
  int fd = fresh("headless");
  MUST(by_record(fd, 1) == 0);
  put(headless_ready[1]);
  nap(HOLD);
  put(headless_pipe[1]);
  MUST(by_record(fd, 0) == 0);
  nap(SOON);
  _exit(0);
}

static void headless(void) {
  MUST(pipe(headless_pipe) == 0 && pipe(headless_ready) == 0);
  if (fork() == 0) {
    close(headless_pipe[0]);
    thread(goes_on, NULL);
    pthread_exit(NULL);
  }
  close(headless_pipe[1]);
  if (fork() == 0) {
    role("headless.reader");
    get(headless_pipe[0]);
    nap(SOON);
    _exit(0);
  }
  if (fork() == 0) {
    get(headless_ready[0]);
    role("headless.locker");
    MUST(by_record(fresh("headless"), 1) == 0);
    nap(SOON);
    _exit(0);
  }
  everybody();
}

int main(void) {
  process(headless);
  process(paused);
  process(sigwaited);
  process(stopped);
  process(traced);
  process(frozen);
  process(frozen_asleep);
  process(child_waited);
  process(two_callers);
  process(child_by_waitid);
  process(child_by_signal);
  process(vforked);
  process(with_flock);
  process(convoy);
  process(with_fcntl);
  process(with_ofd);
  return everybody();
}
