/* Loops that only ask whether they may go on: one after the other, since they keep a CPU busy. "yields NAME" runs one. */
#include "truth.h"
#include <sched.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define FOR 2500.0

static volatile int flag;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static double began;
static int lock_fd;

static void *setter(void *name) {
  role(name);
  nap(FOR);
  flag = 1;
  nap(SOON);
  return NULL;
}

static void turn(int n) {
  switch (n) {
    case 0:
      sched_yield();
      return;
    case 1:
      nap(2);
      return;
    case 2:
      poll(NULL, 0, 0);
      return;
    case 4: {
      struct timespec t;
      clock_gettime(CLOCK_REALTIME, &t);
      t.tv_nsec += 5000000;
      if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
      pthread_mutex_lock(&mutex);
      pthread_cond_timedwait(&condition, &mutex, &t);
      pthread_mutex_unlock(&mutex);
      return;
    }
  }
}

static __attribute__((noinline)) int may_go(void) {
  return flag;
}

static __attribute__((noinline)) void look_again(void) {
  while (!may_go()) __asm__ volatile("" ::: "memory");
}

static __attribute__((noinline)) void ask_again(int n) {
  while (!flag) turn(n);
}

/* A list whose end leads back to its begin: no more than a loop that asks, and works all the time. */
static struct item { struct item *next; } first, second;

static __attribute__((noinline)) void walk(struct item *i) {
  while (i) {
    i = i->next;
    __asm__ volatile("" : "+r"(i));
  }
}

static void *walker(void *arg) {
  (void)arg;
  role("ring.walker");
  first.next = &second;
  second.next = &first;
  walk(&first);
  return NULL;
}

static void ring(void) {
  role("ring.main");
  thread(walker, NULL);
  nap(FOR);
}

static const char *NAMES[] = {"yield", "nap", "poll0", "spin", "timedwait"};

static void ask(int n) {
  static char asker[32], other[32];
  snprintf(asker, sizeof asker, "%s.asker", NAMES[n]);
  snprintf(other, sizeof other, "%s.setter", NAMES[n]);
  role(asker);
  pthread_t t = thread(setter, other);
  if (n == 3) look_again();
  ask_again(n);
  nap(SOON);
  pthread_join(t, NULL);
}

static void *holder(void *arg) {
  (void)arg;
  role("trylock.owner");
  pthread_mutex_lock(&mutex);
  flag = 1;
  nap(FOR);
  pthread_mutex_unlock(&mutex);
  nap(SOON);
  return NULL;
}

static void trylock(void) {
  pthread_t t = thread(holder, NULL);
  while (!flag) nap(1);
  role("trylock.asker");
  while (pthread_mutex_trylock(&mutex)) nap(2);
  pthread_mutex_unlock(&mutex);
  nap(SOON);
  pthread_join(t, NULL);
}

static void setlk(void) {
  char path[200];
  snprintf(path, sizeof path, "%s/setlk", getenv("MECH_DIR"));
  lock_fd = open(path, O_CREAT | O_RDWR, 0600);
  MUST(lock_fd >= 0);
  struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  int ready[2];
  MUST(pipe(ready) == 0);
  if (fork() == 0) {
    role("setlk.owner");
    MUST(fcntl(lock_fd, F_SETLK, &l) == 0);
    put(ready[1]);
    nap(FOR);
    _exit(0);
  }
  get(ready[0]);
  role("setlk.asker");
  began = now();
  while (fcntl(lock_fd, F_SETLK, &l)) nap(20);
  nap(SOON);
  everybody();
}

/* Asks memory that it shares with another process, which is to write there. */
static void mapped(void) {
  volatile int *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  MUST(shared != MAP_FAILED);
  if (fork() == 0) {
    role("mapped.writer");
    nap(FOR);
    *shared = 1;
    nap(SOON);
    _exit(0);
  }
  role("mapped.asker");
  while (!*shared) nap(2);
  nap(SOON);
  everybody();
}

/* Asks for a file that another process makes in the end (`gone`: removes), by the path that both know. */
static void awaited(bool gone) {
  const char *name = gone ? "gone" : "ready";
  char path[200], asker[40], other[40];
  snprintf(path, sizeof path, "%s/%s", getenv("MECH_DIR"), name);
  snprintf(asker, sizeof asker, "%s.asker", name);
  snprintf(other, sizeof other, "%s.other", name);
  if (gone) MUST(mkdir(path, 0700) == 0);
  if (fork() == 0) {
    role(other);
    nap(3000);
    MUST(gone ? rmdir(path) == 0 : mkdir(path, 0700) == 0);
    nap(SOON);
    _exit(0);
  }
  role(asker);
  began = now();
  if (gone)
    while (mkdir(path, 0700)) nap(200);
  else
    while (access(path, F_OK)) nap(200);
  nap(SOON);
  everybody();
}

/* Asks two services that nobody has started, and sleeps twice as long each time. */
static void backoff(void) {
  struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  struct sockaddr_un un = {.sun_family = AF_UNIX};
  socklen_t len = sizeof in;
  /* A port that was free a moment ago. */
  int free_port = socket(AF_INET, SOCK_STREAM, 0);
  MUST(bind(free_port, (struct sockaddr *)&in, len) == 0);
  MUST(getsockname(free_port, (struct sockaddr *)&in, &len) == 0);
  close(free_port);
  snprintf(un.sun_path, sizeof un.sun_path, "%s/nobody", getenv("MECH_DIR"));
  role("backoff.asker");
  for (double pause = 200; pause < 2000; pause *= 2) {
    int a = socket(AF_UNIX, SOCK_STREAM, 0), b = socket(AF_INET, SOCK_STREAM, 0);
    MUST(connect(a, (struct sockaddr *)&un, sizeof un) < 0);
    MUST(connect(b, (struct sockaddr *)&in, sizeof in) < 0);
    close(a);
    close(b);
    nap(pause);
  }
}

int main(int argc, char **argv) {
  (void)argc;
  for (int n = 0; n < 5; n++) {
    if (!strcmp(argv[1], NAMES[n])) ask(n);
  }
  if (!strcmp(argv[1], "ring")) ring();
  if (!strcmp(argv[1], "trylock")) trylock();
  if (!strcmp(argv[1], "setlk")) setlk();
  if (!strcmp(argv[1], "mapped")) mapped();
  if (!strcmp(argv[1], "ready")) awaited(false);
  if (!strcmp(argv[1], "gone")) awaited(true);
  if (!strcmp(argv[1], "backoff")) backoff();
  return 0;
}
