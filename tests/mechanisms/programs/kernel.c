/* Waits inside the kernel: io_uring, page faults, a group's memory, threads of a pool. */
#include "truth.h"
#include <linux/io_uring.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

struct ring {
  int fd;
  unsigned *sq_tail, *sq_mask, *sq_array;
  struct io_uring_sqe *sqes;
};

/* A ring of eight, by the system calls themselves. */
static int make_ring(struct ring *r) {
  struct io_uring_params p = {0};
  r->fd = syscall(SYS_io_uring_setup, 8, &p);
  if (r->fd < 0) return -1;
  char *sq = mmap(NULL, p.sq_off.array + p.sq_entries * sizeof(unsigned), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_POPULATE, r->fd, IORING_OFF_SQ_RING);
  r->sqes = mmap(NULL, p.sq_entries * sizeof *r->sqes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd,
                 IORING_OFF_SQES);
  MUST(sq != MAP_FAILED && r->sqes != MAP_FAILED);
  r->sq_tail = (unsigned *)(sq + p.sq_off.tail);
  r->sq_mask = (unsigned *)(sq + p.sq_off.ring_mask);
  r->sq_array = (unsigned *)(sq + p.sq_off.array);
  return 0;
}

/* One request is handed in, and its completion waited for, in one call. */
static void ring_and_writer(const int fds[2], int op, char *waiter, char *writer) {
  if (fork() == 0) {
    role(writer);
    close(fds[0]);
    nap(HOLD);
    put(fds[1]);
    nap(SOON);
    _exit(0);
  }
  close(fds[1]);
  struct ring r;
  if (make_ring(&r)) {
    lacks(waiter, "no io_uring");
    _exit(0);
  }
  role(waiter);
  static char buffer[16];
  unsigned i = *r.sq_tail & *r.sq_mask;
  struct io_uring_sqe *e = &r.sqes[i];
  memset(e, 0, sizeof *e);
  e->opcode = op;
  e->fd = fds[0];
  if (op == IORING_OP_POLL_ADD) {
    e->poll32_events = POLLIN;
  } else {
    e->addr = (uintptr_t)buffer;
    e->len = sizeof buffer;
  }
  r.sq_array[i] = i;
  __atomic_store_n(r.sq_tail, *r.sq_tail + 1, __ATOMIC_RELEASE);
  MUST(syscall(SYS_io_uring_enter, r.fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) == 1);
  nap(SOON);
  everybody();
}

static void ring_pipe(void) {
  int fds[2];
  MUST(pipe(fds) == 0);
  ring_and_writer(fds, IORING_OP_READ, "uring.reader", "uring.writer");
}

static void ring_socket(void) {
  int fds[2];
  MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
  ring_and_writer(fds, IORING_OP_RECV, "uringsock.recv", "uringsock.send");
}

static void ring_poll(void) {
  int fds[2];
  MUST(pipe(fds) == 0);
  ring_and_writer(fds, IORING_OP_POLL_ADD, "uringpoll.wait", "uringpoll.write");
}

static int faults;
static char *page;

static void *handler(void *arg) {
  (void)arg;
  role("fault.handler");
  struct uffd_msg m;
  MUST(read(faults, &m, sizeof m) == sizeof m);
  nap(HOLD);
  struct uffdio_zeropage z = {{(uintptr_t)page, 4096}, 0, 0};
  MUST(ioctl(faults, UFFDIO_ZEROPAGE, &z) == 0);
  nap(SOON);
  return NULL;
}

/* A page is missing, and who is to bring it takes long. */
static void page_fault(void) {
  faults = syscall(SYS_userfaultfd, O_CLOEXEC);
  struct uffdio_api api = {.api = UFFD_API};
  if (faults < 0 || ioctl(faults, UFFDIO_API, &api)) {
    lacks("fault.toucher", "no userfaultfd");
    return;
  }
  page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  struct uffdio_register reg = {{(uintptr_t)page, 4096}, UFFDIO_REGISTER_MODE_MISSING, 0};
  MUST(page != MAP_FAILED && ioctl(faults, UFFDIO_REGISTER, &reg) == 0);
  role("fault.toucher");
  pthread_t t = thread(handler, NULL);
  nap(SOON);
  *(volatile char *)page;
  nap(SOON);
  pthread_join(t, NULL);
}

/* A group has used up its memory, and nobody in it is killed for that: whoever wants more waits until it may. */
static void memory(void) {
  char group[200], number[20];
  snprintf(group, sizeof group, "/sys/fs/cgroup/memory/pg-tui-mechanism-%d", getpid());
  int ok = mkdir(group, 0755) == 0 && !set(group, "memory.limit_in_bytes", "4194304") && !set(group, "memory.oom_control", "1");
  if (!ok) {
    rmdir(group);
    lacks("memory.short", "no control group whose members wait for memory can be made (version 1 only)");
    return;
  }
  if (fork() == 0) {
    role("memory.short");
    snprintf(number, sizeof number, "%d", getpid());
    MUST(!set(group, "cgroup.procs", number));
    size_t size = 16 << 20;
    char *much = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(much != MAP_FAILED);
    for (size_t i = 0; i < size; i += 4096) much[i] = 1;
    nap(SOON);
    _exit(0);
  }
  role("memory.giver");
  nap(HOLD);
  MUST(!set(group, "memory.limit_in_bytes", "67108864"));
  nap(SOON);
  everybody();
  rmdir(group);
}

/* A pool of one thread, as every run-time library has one: jobs in a queue, a condition for the worker and one for each
 * result. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t queued = PTHREAD_COND_INITIALIZER;
static pthread_cond_t done[2] = {PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER};
static int jobs, finished;

static void *worker(void *arg) {
  (void)arg;
  role("pool.worker");
  for (int i = 0; i < 2; i++) {
    pthread_mutex_lock(&lock);
    while (jobs == i) pthread_cond_wait(&queued, &lock);
    pthread_mutex_unlock(&lock);
    nap(i == 0 ? HOLD : 10);
    pthread_mutex_lock(&lock);
    finished = i + 1;
    pthread_cond_signal(&done[i]);
    pthread_mutex_unlock(&lock);
  }
  return NULL;
}

static void *asker(void *arg) {
  int mine = *(int *)arg;
  role(mine == 1 ? "pool.first" : "pool.second");
  if (mine == 2) nap(SOON);
  pthread_mutex_lock(&lock);
  jobs++;
  pthread_cond_signal(&queued);
  while (finished < mine) pthread_cond_wait(&done[mine - 1], &lock);
  pthread_mutex_unlock(&lock);
  nap(SOON);
  return NULL;
}

static void pool(void) {
  static int one = 1, two = 2;
  pthread_t w = thread(worker, NULL), a = thread(asker, &one), b = thread(asker, &two);
  pthread_join(w, NULL);
  pthread_join(a, NULL);
  pthread_join(b, NULL);
}

int main(void) {
  process(ring_pipe);
  process(ring_socket);
  process(ring_poll);
  process(page_fault);
  process(memory);
  process(pool);
  return everybody();
}
