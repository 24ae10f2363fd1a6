/* What the programs of this folder have in common: each mechanism runs in a process of its own, and says who plays
 * which part, so that the test knows the truth: "fact ROLE PID TID". */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* How long the wait of each mechanism lasts, ms: several times what passes until its holder is looked up. */
#define HOLD 2500
/* Until whoever is to wait does. */
#define SOON 150

#define MUST(x) \
  do { \
    if (!(x)) { \
      dprintf(2, "%s:%d: %s: %s\n", __FILE__, __LINE__, #x, strerror(errno)); \
      _exit(1); \
    } \
  } while (0)

/* In one write, so that lines of several processes do not mix. */
static inline void role(const char *name) {
  char line[128];
  int n = snprintf(line, sizeof line, "fact %s %d %d\n", name, getpid(), (int)syscall(SYS_gettid));
  MUST(write(1, line, n) == n);
  prctl(PR_SET_NAME, name);
  /* Nothing of a test outlives it. */
  alarm(60);
}

/* This machine lacks something: the mechanism's test is skipped. */
static inline void lacks(const char *role, const char *why) {
  char line[256];
  int n = snprintf(line, sizeof line, "lacks %s %s\n", role, why);
  MUST(write(1, line, n) == n);
}

static inline void nap(int ms) {
  struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
  while (nanosleep(&t, &t) && errno == EINTR) {
  }
}

static inline double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static inline pthread_t thread(void *(*run)(void *), void *arg) {
  pthread_t t;
  MUST(pthread_create(&t, NULL, run, arg) == 0);
  return t;
}

/* Runs in a process of its own. */
static inline pid_t process(void (*run)(void)) {
  pid_t pid = fork();
  MUST(pid >= 0);
  if (pid == 0) {
    run();
    _exit(0);
  }
  return pid;
}

/* Ends when all that was started has. */
static inline int everybody(void) {
  int status, bad = 0;
  while (wait(&status) > 0) bad |= !WIFEXITED(status) || WEXITSTATUS(status);
  return bad;
}

/* Writes a setting of a control group; true when that failed. */
static inline int set(const char *group, const char *file, const char *text) {
  char path[300];
  snprintf(path, sizeof path, "%s/%s", group, file);
  int fd = open(path, O_WRONLY);
  int bad = fd < 0 || write(fd, text, strlen(text)) < 0;
  if (fd >= 0) close(fd);
  return bad;
}

static inline void put(int fd) { MUST(write(fd, "x", 1) == 1); }

static inline char get(int fd) {
  char c = 0;
  MUST(read(fd, &c, 1) >= 0);
  return c;
}
