/* Waits for several descriptors at once, and descriptors that stand for something else than data. */
#include "truth.h"
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>

/* `wait` is told two descriptors; the second one becomes readable, by another process. */
static void two(void (*wait)(int, int), const char *waiter, const char *writer) {
  int quiet[2], used[2];
  MUST(pipe(quiet) == 0 && pipe(used) == 0);
  if (fork() == 0) {
    role(writer);
    nap(HOLD);
    put(used[1]);
    nap(SOON);
    _exit(0);
  }
  role(waiter);
  close(used[1]);
  wait(quiet[0], used[0]);
  nap(SOON);
  everybody();
}

static void by_poll(int a, int b) {
  struct pollfd fds[2] = {{a, POLLIN, 0}, {b, POLLIN, 0}};
  MUST(poll(fds, 2, -1) == 1 && fds[1].revents);
}

/* As tail(1) watches a file: of its standard output it only asks whether it was closed. */
static void by_poll_of_ends(int a, int b) {
  int out[2];
  MUST(pipe(out) == 0);
  close(a);
  struct pollfd fds[2] = {{b, POLLIN, 0}, {out[1], 0, 0}};
  MUST(poll(fds, 2, -1) == 1 && fds[0].revents);
}

static void by_ppoll(int a, int b) {
  struct pollfd fds[2] = {{a, POLLIN, 0}, {b, POLLIN, 0}};
  struct timespec t = {60, 0};
  MUST(ppoll(fds, 2, &t, NULL) == 1 && fds[1].revents);
}

static void by_select(int a, int b) {
  fd_set set;
  FD_ZERO(&set);
  FD_SET(a, &set);
  FD_SET(b, &set);
  MUST(select((a > b ? a : b) + 1, &set, NULL, NULL, NULL) == 1 && FD_ISSET(b, &set));
}

static void by_epoll(int a, int b) {
  int ep = epoll_create1(0);
  struct epoll_event e = {.events = EPOLLIN, .data.fd = a}, got[2];
  MUST(epoll_ctl(ep, EPOLL_CTL_ADD, a, &e) == 0);
  e.data.fd = b;
  MUST(epoll_ctl(ep, EPOLL_CTL_ADD, b, &e) == 0);
  MUST(epoll_wait(ep, got, 2, -1) == 1 && got[0].data.fd == b);
}

static void with_poll(void) { two(by_poll, "poll.waiter", "poll.writer"); }
static void with_hangups(void) { two(by_poll_of_ends, "hangups.waiter", "hangups.writer"); }
static void with_ppoll(void) { two(by_ppoll, "ppoll.waiter", "ppoll.writer"); }
static void with_select(void) { two(by_select, "select.waiter", "select.writer"); }
static void with_epoll(void) { two(by_epoll, "epoll.waiter", "epoll.writer"); }

/* A thread of the same process arms the timer that another one reads. */
static int timer;

static void *armer(void *arg) {
  (void)arg;
  role("timerfd.armer");
  nap(SOON);
  struct itimerspec when = {{0, 0}, {1, 500000000}};
  MUST(timerfd_settime(timer, 0, &when, NULL) == 0);
  nap(HOLD);
  return NULL;
}

static void timerfd(void) {
  timer = timerfd_create(CLOCK_MONOTONIC, 0);
  role("timerfd.reader");
  pthread_t t = thread(armer, NULL);
  uint64_t n;
  MUST(read(timer, &n, 8) == 8);
  nap(SOON);
  pthread_join(t, NULL);
}

static void signals(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  sigprocmask(SIG_BLOCK, &set, NULL);
  int fd = signalfd(-1, &set, 0);
  pid_t to = getpid();
  if (fork() == 0) {
    role("signalfd.sender");
    nap(HOLD);
    kill(to, SIGUSR1);
    nap(SOON);
    _exit(0);
  }
  role("signalfd.reader");
  struct signalfd_siginfo i;
  MUST(read(fd, &i, sizeof i) == sizeof i);
  nap(SOON);
  everybody();
}

static void watched(void) {
  int fd = inotify_init();
  MUST(inotify_add_watch(fd, getenv("MECH_DIR"), IN_CREATE) >= 0);
  char file[200];
  snprintf(file, sizeof file, "%s/inotify-%d", getenv("MECH_DIR"), getpid());
  if (fork() == 0) {
    role("inotify.maker");
    nap(HOLD);
    close(open(file, O_CREAT | O_WRONLY, 0600));
    nap(SOON);
    _exit(0);
  }
  role("inotify.reader");
  char buffer[8192];
  do {
    ssize_t n = read(fd, buffer, sizeof buffer);
    MUST(n > 0);
  } while (access(file, F_OK));
  nap(SOON);
  everybody();
}

static void child_by_descriptor(void) {
  pid_t child = fork();
  if (child == 0) {
    role("pidfd.child");
    nap(HOLD);
    _exit(0);
  }
  int fd = syscall(SYS_pidfd_open, child, 0);
  MUST(fd >= 0);
  role("pidfd.waiter");
  struct pollfd p = {fd, POLLIN, 0};
  MUST(poll(&p, 1, -1) == 1);
  nap(SOON);
  everybody();
}

int main(void) {
  process(with_poll);
  process(with_hangups);
  process(with_ppoll);
  process(with_select);
  process(with_epoll);
  process(timerfd);
  process(signals);
  process(watched);
  process(child_by_descriptor);
  return everybody();
}
