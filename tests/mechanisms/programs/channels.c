/* Pipes, FIFOs, terminals, unix sockets, message queues, eventfd: somebody waits, somebody else sends or receives. */
#include "truth.h"
#include <mqueue.h>
#include <pty.h>
#include <sys/eventfd.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>

/* Two processes around what `make` puts in place of two descriptors: the first reads, the second writes at last. */
static void reader_and_writer(const int fds[2], const char *reader, const char *writer) {
  if (fork() == 0) {
    role(writer);
    if (fds[0] != fds[1]) close(fds[0]);
    nap(HOLD);
    put(fds[1]);
    nap(SOON);
    _exit(0);
  }
  role(reader);
  if (fds[0] != fds[1]) close(fds[1]);
  get(fds[0]);
  nap(SOON);
  everybody();
}

static void pipe_empty(void) {
  int fds[2];
  MUST(pipe(fds) == 0);
  reader_and_writer(fds, "pipe.reader", "pipe.writer");
}

static void fill(int fd) {
  char buffer[4096] = {0};
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  while (write(fd, buffer, sizeof buffer) > 0) {
  }
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
}

static void drain(int fd) {
  char buffer[65536];
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  while (read(fd, buffer, sizeof buffer) > 0) {
  }
}

/* The second makes room at last. */
static void full(int to, int from, const char *writer, const char *reader) {
  fill(to);
  if (fork() == 0) {
    role(reader);
    close(to);
    nap(HOLD);
    drain(from);
    nap(SOON);
    _exit(0);
  }
  role(writer);
  close(from);
  put(to);
  nap(SOON);
  everybody();
}

static void pipe_full(void) {
  int fds[2];
  MUST(pipe(fds) == 0);
  full(fds[1], fds[0], "pipefull.writer", "pipefull.reader");
}

static char *path(const char *name) {
  static char text[200];
  snprintf(text, sizeof text, "%s/%s", getenv("MECH_DIR"), name);
  return text;
}

static void fifo(void) {
  MUST(mkfifo(path("fifo"), 0600) == 0);
  int both = open(path("fifo"), O_RDWR);
  int fds[2] = {open(path("fifo"), O_RDONLY), open(path("fifo"), O_WRONLY)};
  close(both);
  reader_and_writer(fds, "fifo.reader", "fifo.writer");
}

/* open(2) of a FIFO waits for somebody at the other end. */
static void fifo_opened(void) {
  MUST(mkfifo(path("fifo-open"), 0600) == 0);
  if (fork() == 0) {
    role("fifoopen.second");
    nap(HOLD);
    put(open(path("fifo-open"), O_WRONLY));
    nap(SOON);
    _exit(0);
  }
  role("fifoopen.first");
  get(open(path("fifo-open"), O_RDONLY));
  nap(SOON);
  everybody();
}

/* Each of two opens the FIFO from the other one first, which would be opened next. */
static void fifos_crosswise(void) {
  static const char *const names[] = {"ask", "answer"};
  static const char *const who[] = {"crossed.left", "crossed.right"};
  pid_t both[2];
  MUST(mkfifo(path(names[0]), 0600) == 0 && mkfifo(path(names[1]), 0600) == 0);
  for (int i = 0; i < 2; i++) {
    if ((both[i] = fork()) == 0) {
      role(who[i]);
      int from = open(path(names[i]), O_RDONLY);
      put(open(path(names[1 - i]), O_WRONLY));
      get(from);
      _exit(0);
    }
  }
  nap(HOLD);
  kill(both[0], SIGKILL);
  kill(both[1], SIGKILL);
  everybody();
}

static void terminal(void) {
  int fds[2];
  MUST(openpty(&fds[1], &fds[0], NULL, NULL, NULL) == 0);
  struct termios t;
  tcgetattr(fds[0], &t);
  cfmakeraw(&t);
  tcsetattr(fds[0], TCSANOW, &t);
  reader_and_writer(fds, "tty.program", "tty.emulator");
}

static void unix_stream(void) {
  int fds[2];
  MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
  reader_and_writer(fds, "unix.reader", "unix.writer");
}

static void unix_full(void) {
  int fds[2];
  MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
  full(fds[0], fds[1], "unixfull.writer", "unixfull.reader");
}

static void unix_datagram(void) {
  int fds[2];
  MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, fds) == 0);
  reader_and_writer(fds, "dgram.reader", "dgram.writer");
}

static void unix_packet(void) {
  int fds[2];
  MUST(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds) == 0);
  reader_and_writer(fds, "packet.reader", "packet.writer");
}

static void counter(void) {
  int fd = eventfd(0, 0);
  if (fork() == 0) {
    role("eventfd.writer");
    nap(HOLD);
    MUST(eventfd_write(fd, 1) == 0);
    nap(SOON);
    _exit(0);
  }
  role("eventfd.reader");
  eventfd_t n;
  MUST(eventfd_read(fd, &n) == 0);
  nap(SOON);
  everybody();
}

struct message {
  long type;
  char text[8];
};

static void sysv_queue(void) {
  int queue = msgget(IPC_PRIVATE, 0600);
  if (queue < 0) {
    lacks("sysvmsg.receiver", "no System V message queues");
    return;
  }
  struct message m = {1, "x"};
  if (fork() == 0) {
    role("sysvmsg.sender");
    nap(HOLD);
    MUST(msgsnd(queue, &m, sizeof m.text, 0) == 0);
    nap(SOON);
    _exit(0);
  }
  role("sysvmsg.receiver");
  MUST(msgrcv(queue, &m, sizeof m.text, 0, 0) > 0);
  nap(SOON);
  everybody();
  msgctl(queue, IPC_RMID, NULL);
}

static void sysv_semaphore(void) {
  int sems = semget(IPC_PRIVATE, 1, 0600);
  if (sems < 0) {
    lacks("sysvsem.waiter", "no System V semaphores");
    return;
  }
  struct sembuf up = {0, 1, 0}, down = {0, -1, 0};
  if (fork() == 0) {
    role("sysvsem.poster");
    nap(HOLD);
    MUST(semop(sems, &up, 1) == 0);
    nap(SOON);
    _exit(0);
  }
  role("sysvsem.waiter");
  MUST(semop(sems, &down, 1) == 0);
  nap(SOON);
  everybody();
  semctl(sems, 0, IPC_RMID);
}

static void posix_queue(void) {
  char name[64];
  snprintf(name, sizeof name, "/pg-tui-mechanism-%d", getpid());
  mqd_t queue = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, NULL);
  if (queue == (mqd_t)-1) {
    lacks("mq.receiver", "no POSIX message queues");
    return;
  }
  mq_unlink(name);
  if (fork() == 0) {
    role("mq.sender");
    nap(HOLD);
    MUST(mq_send(queue, "x", 1, 0) == 0);
    nap(SOON);
    _exit(0);
  }
  role("mq.receiver");
  static char buffer[65536];
  MUST(mq_receive(queue, buffer, sizeof buffer, NULL) == 1);
  nap(SOON);
  everybody();
}

int main(void) {
  process(pipe_empty);
  process(pipe_full);
  process(fifo);
  process(fifo_opened);
  process(fifos_crosswise);
  process(terminal);
  process(unix_stream);
  process(unix_full);
  process(unix_datagram);
  process(unix_packet);
  process(counter);
  process(sysv_queue);
  process(sysv_semaphore);
  process(posix_queue);
  return everybody();
}
