/* Clients and servers: TCP, UDP, unix; answers that are late, connections that nobody accepts. */
#include "truth.h"
#include <arpa/inet.h>
#include <netinet/in.h>

static int bound(int type, struct sockaddr_in *a) {
  int fd = socket(AF_INET, type, 0);
  MUST(fd >= 0);
  *a = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t n = sizeof *a;
  MUST(bind(fd, (struct sockaddr *)a, n) == 0);
  MUST(getsockname(fd, (struct sockaddr *)a, &n) == 0);
  return fd;
}

static int connected(int type, const struct sockaddr_in *a) {
  int fd = socket(AF_INET, type, 0);
  MUST(connect(fd, (const struct sockaddr *)a, sizeof *a) == 0);
  return fd;
}

/* The server takes the request at once, and takes its time for the answer. */
static void answer_late(int fd) {
  get(fd);
  nap(HOLD);
  put(fd);
  nap(SOON);
}

static void tcp(void) {
  struct sockaddr_in a;
  int listener = bound(SOCK_STREAM, &a);
  MUST(listen(listener, 5) == 0);
  if (fork() == 0) {
    role("tcp.server");
    answer_late(accept(listener, NULL, NULL));
    _exit(0);
  }
  close(listener);
  role("tcp.client");
  int fd = connected(SOCK_STREAM, &a);
  put(fd);
  get(fd);
  nap(SOON);
  everybody();
}

/* A connection is there, and nobody accepts it for long. */
static void not_accepted(void) {
  struct sockaddr_in a;
  int listener = bound(SOCK_STREAM, &a);
  MUST(listen(listener, 5) == 0);
  if (fork() == 0) {
    role("backlog.server");
    nap(HOLD);
    int fd = accept(listener, NULL, NULL);
    get(fd);
    put(fd);
    nap(SOON);
    _exit(0);
  }
  close(listener);
  role("backlog.client");
  int fd = connected(SOCK_STREAM, &a);
  put(fd);
  get(fd);
  nap(SOON);
  everybody();
}

/* The receiver's window and the sender's buffer are full. */
static void tcp_full(void) {
  struct sockaddr_in a;
  int listener = bound(SOCK_STREAM, &a);
  MUST(listen(listener, 5) == 0);
  static char buffer[1 << 20];
  if (fork() == 0) {
    role("tcpfull.reader");
    int fd = accept(listener, NULL, NULL);
    nap(HOLD);
    while (read(fd, buffer, sizeof buffer) > 0) {
    }
    nap(SOON);
    _exit(0);
  }
  close(listener);
  role("tcpfull.writer");
  int fd = connected(SOCK_STREAM, &a);
  int size = 65536;
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
  for (int i = 0; i < 16; i++) MUST(write(fd, buffer, sizeof buffer) == sizeof buffer);
  nap(SOON);
  close(fd);
  everybody();
}

/* accept(2) waits for a client. */
static void accept_waits(void) {
  struct sockaddr_in a;
  int listener = bound(SOCK_STREAM, &a);
  MUST(listen(listener, 5) == 0);
  if (fork() == 0) {
    close(listener);
    role("accept.client");
    nap(HOLD);
    put(connected(SOCK_STREAM, &a));
    nap(SOON);
    _exit(0);
  }
  role("accept.server");
  get(accept(listener, NULL, NULL));
  nap(SOON);
  everybody();
}

static void udp(void) {
  struct sockaddr_in a, b;
  int server = bound(SOCK_DGRAM, &a), client = bound(SOCK_DGRAM, &b);
  MUST(connect(client, (struct sockaddr *)&a, sizeof a) == 0);
  MUST(connect(server, (struct sockaddr *)&b, sizeof b) == 0);
  if (fork() == 0) {
    close(client);
    role("udp.server");
    answer_late(server);
    _exit(0);
  }
  close(server);
  role("udp.client");
  put(client);
  get(client);
  nap(SOON);
  everybody();
}

static void unix_name(const char *name, struct sockaddr_un *a) {
  *a = (struct sockaddr_un){.sun_family = AF_UNIX};
  snprintf(a->sun_path, sizeof a->sun_path, "%s/%s", getenv("MECH_DIR"), name);
}

static int unix_listener(const char *name, int backlog, struct sockaddr_un *a) {
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  unix_name(name, a);
  MUST(bind(fd, (struct sockaddr *)a, sizeof *a) == 0);
  MUST(listen(fd, backlog) == 0);
  return fd;
}

/* connect(2) itself waits: the queue of the listener is full. */
static void unix_queue_full(void) {
  struct sockaddr_un a;
  int listener = unix_listener("full", 0, &a);
  int first = socket(AF_UNIX, SOCK_STREAM, 0);
  MUST(connect(first, (struct sockaddr *)&a, sizeof a) == 0);
  if (fork() == 0) {
    close(first);
    role("connect.server");
    nap(HOLD);
    accept(listener, NULL, NULL);
    nap(SOON);
    _exit(0);
  }
  close(listener);
  role("connect.client");
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  MUST(connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
  nap(SOON);
  everybody();
}

/* The server has the request and computes something else for long: the wait does not end in its time-out. */
static void unanswered(void) {
  struct sockaddr_un a;
  int listener = unix_listener("unanswered", 5, &a);
  if (fork() == 0) {
    role("unanswered.srv");
    int fd = accept(listener, NULL, NULL);
    get(fd);
    nap(HOLD + 400);
    _exit(0);
  }
  close(listener);
  role("unanswered.clt");
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  MUST(connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
  struct timeval t = {2, 200000};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
  put(fd);
  char c;
  MUST(read(fd, &c, 1) == -1 && errno == EAGAIN);
  nap(SOON);
  everybody();
}

int main(void) {
  process(tcp);
  process(not_accepted);
  process(tcp_full);
  process(accept_waits);
  process(udp);
  process(unix_queue_full);
  process(unanswered);
  return everybody();
}
