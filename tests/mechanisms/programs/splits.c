/* Servers of two clients at once: what was done for one is no cause of what the other one waits for. */
#include "truth.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/epoll.h>

static int ends[2][2];

static void two_clients(const char *name) {
  for (int i = 0; i < 2; i++) {
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends[i]) == 0);
    if (fork() == 0) {
      char who[32];
      snprintf(who, sizeof who, "%s.client%d", name, i);
      role(who);
      for (int k = 0; k < 40; k++) {
        nap(10);
        put(ends[i][0]);
        get(ends[i][0]);
      }
      nap(SOON);
      _exit(0);
    }
  }
}

static volatile unsigned long work;

static void compute(int us) {
  double end = now() + us / 1e3;
  while (now() < end) work = work * 31 + 7;
}

/* An event loop that seldom waits between two requests. */
static void loop(void) {
  two_clients("loop");
  role("loop.server");
  int ep = epoll_create1(0);
  for (int i = 0; i < 2; i++) {
    struct epoll_event e = {.events = EPOLLIN, .data.fd = ends[i][1]};
    MUST(epoll_ctl(ep, EPOLL_CTL_ADD, ends[i][1], &e) == 0);
  }
  for (int served = 0; served < 80;) {
    struct epoll_event got[2];
    int n = epoll_wait(ep, got, 2, -1);
    for (int i = 0; i < n; i++, served++) {
      get(got[i].data.fd);
      /* The other one's request comes meanwhile: it is there at the next look. */
      compute(4000);
      put(got[i].data.fd);
    }
  }
  nap(SOON);
  everybody();
}

/* No event loop: reads from one, answers it, reads from the other one, answers it. */
static void turns(void) {
  two_clients("turns");
  role("turns.server");
  for (int k = 0; k < 40; k++) {
    for (int i = 0; i < 2; i++) {
      get(ends[i][1]);
      compute(500);
      put(ends[i][1]);
    }
  }
  nap(SOON);
  everybody();
}

/* recvmmsg and sendmmsg: a batch of messages of two clients in one call each. */
static void batch(void) {
  int server = socket(AF_INET, SOCK_DGRAM, 0);
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof a;
  MUST(bind(server, (struct sockaddr *)&a, size) == 0 && getsockname(server, (struct sockaddr *)&a, &size) == 0);
  for (int i = 0; i < 2; i++) {
    if (fork() == 0) {
      char who[32];
      snprintf(who, sizeof who, "batch.client%d", i);
      int fd = socket(AF_INET, SOCK_DGRAM, 0);
      struct sockaddr_in mine = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
      MUST(bind(fd, (struct sockaddr *)&mine, sizeof mine) == 0);
      MUST(connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
      role(who);
      for (int k = 0; k < 40; k++) {
        nap(10);
        put(fd);
        get(fd);
      }
      nap(SOON);
      _exit(0);
    }
  }
  role("batch.server");
  for (int served = 0; served < 80;) {
    char data[4];
    struct iovec parts[4];
    struct sockaddr_in from[4];
    struct mmsghdr m[4];
    memset(m, 0, sizeof m);
    for (int i = 0; i < 4; i++) {
      parts[i] = (struct iovec){data + i, 1};
      m[i].msg_hdr = (struct msghdr){.msg_name = &from[i], .msg_namelen = sizeof *from, .msg_iov = &parts[i], .msg_iovlen = 1};
    }
    struct pollfd p = {server, POLLIN, 0};
    poll(&p, 1, -1);
    nap(3);
    int n = recvmmsg(server, m, 4, MSG_DONTWAIT, NULL);
    if (n <= 0) continue;
    compute(500);
    MUST(sendmmsg(server, m, n, 0) == n);
    served += n;
  }
  nap(SOON);
  everybody();
}

int main(void) {
  process(loop);
  process(turns);
  process(batch);
  return everybody();
}
