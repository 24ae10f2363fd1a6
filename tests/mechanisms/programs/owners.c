/* Waits that nobody ends for a long time, of which only the state of the system tells who could: semaphores and queues
 * of System V, POSIX queues, leases, who is asked before a file is opened, terminals. */
#include "truth.h"
#include <mqueue.h>
#include <pty.h>
#include <sys/fanotify.h>
#include <sys/ioctl.h>
#include <sys/msg.h>
#include <sys/sem.h>

static int semaphores, ready[2];

static void change(int by) {
  struct sembuf op = {0, by, 0};
  MUST(semop(semaphores, &op, 1) == 0);
}

static void new_semaphore(void) {
  semaphores = semget(IPC_PRIVATE, 1, 0600);
  MUST(semaphores >= 0 && semctl(semaphores, 0, SETVAL, 1) == 0 && pipe(ready) == 0);
}

static void semaphore_taken(void) {
  new_semaphore();
  if (fork() == 0) {
    role("semtaken.owner");
    change(-1);
    put(ready[1]);
    nap(HOLD);
    change(1);
    nap(SOON);
    _exit(0);
  }
  get(ready[0]);
  role("semtaken.waiter");
  change(-1);
  nap(SOON);
  everybody();
  semctl(semaphores, 0, IPC_RMID);
}

/* Whoever has it ends without giving it back. */
static void semaphore_lost(void) {
  new_semaphore();
  if (fork() == 0) {
    role("semlost.owner");
    nap(SOON);
    change(-1);
    _exit(3);
  }
  everybody();
  pid_t waiter = fork();
  if (waiter == 0) {
    role("semlost.waiter");
    change(-1);
    _exit(0);
  }
  nap(HOLD);
  kill(waiter, SIGKILL);
  everybody();
  semctl(semaphores, 0, IPC_RMID);
}

struct message {
  long type;
  char text[8];
};

static void queue_without_sender(void) {
  int queue = msgget(IPC_PRIVATE, 0600);
  struct message m = {1, "first"};
  MUST(queue >= 0 && pipe(ready) == 0);
  if (fork() == 0) {
    role("msgsent.sender");
    MUST(msgsnd(queue, &m, sizeof m.text, 0) == 0);
    put(ready[1]);
    nap(HOLD);
    MUST(msgsnd(queue, &m, sizeof m.text, 0) == 0);
    nap(SOON);
    _exit(0);
  }
  get(ready[0]);
  role("msgsent.receiver");
  for (int i = 0; i < 2; i++) MUST(msgrcv(queue, &m, sizeof m.text, 0, 0) > 0);
  nap(SOON);
  everybody();
  msgctl(queue, IPC_RMID, 0);
}

static void posix_queue(void) {
  char name[40], text[8];
  snprintf(name, sizeof name, "/pg-tui-mechanism-%d", getpid());
  struct mq_attr a = {.mq_maxmsg = 2, .mq_msgsize = sizeof text};
  mqd_t in = mq_open(name, O_CREAT | O_RDONLY, 0600, &a);
  if (in < 0) {
    lacks("mqopen.receiver", "no POSIX message queues here");
    return;
  }
  if (fork() == 0) {
    mq_close(in);
    mqd_t out = mq_open(name, O_WRONLY);
    role("mqopen.sender");
    nap(HOLD);
    MUST(mq_send(out, "x", 1, 0) == 0);
    nap(SOON);
    _exit(0);
  }
  role("mqopen.receiver");
  MUST(mq_receive(in, text, sizeof text, NULL) == 1);
  nap(SOON);
  everybody();
  mq_unlink(name);
}

static int file(const char *name, int how) {
  char path[200];
  snprintf(path, sizeof path, "%s/%s", getenv("MECH_DIR"), name);
  return open(path, how, 0600);
}

/* The lease is given up late. */
static void lease(void) {
  MUST(pipe(ready) == 0);
  close(file("lease", O_CREAT | O_RDWR));
  if (fork() == 0) {
    role("lease.owner");
    signal(SIGIO, SIG_IGN);
    int fd = file("lease", O_RDWR);
    if (fcntl(fd, F_SETLEASE, F_WRLCK)) lacks("lease.opener", "no leases on this file system");
    put(ready[1]);
    nap(HOLD);
    fcntl(fd, F_SETLEASE, F_UNLCK);
    nap(SOON);
    _exit(0);
  }
  get(ready[0]);
  role("lease.opener");
  MUST(file("lease", O_RDONLY) >= 0);
  nap(SOON);
  everybody();
}

/* A scanner is asked before a file is opened, and answers late. */
static void permission(void) {
  MUST(pipe(ready) == 0);
  close(file("scanned", O_CREAT | O_RDWR));
  if (fork() == 0) {
    role("permit.scanner");
    char path[200];
    snprintf(path, sizeof path, "%s/scanned", getenv("MECH_DIR"));
    int group = fanotify_init(FAN_CLASS_CONTENT, O_RDONLY);
    if (group < 0 || fanotify_mark(group, FAN_MARK_ADD, FAN_OPEN_PERM, AT_FDCWD, path))
      lacks("permit.opener", "no program is asked before files are opened here");
    put(ready[1]);
    nap(HOLD);
    struct fanotify_event_metadata asked;
    if (group >= 0 && read(group, &asked, sizeof asked) > 0) {
      struct fanotify_response answer = {asked.fd, FAN_ALLOW};
      MUST(write(group, &answer, sizeof answer) > 0);
    }
    nap(SOON);
    _exit(0);
  }
  get(ready[0]);
  role("permit.opener");
  MUST(file("scanned", O_RDONLY) >= 0);
  nap(SOON);
  everybody();
}

/* A job in the background reads from the terminal. */
static void background(void) {
  int master, slave;
  MUST(openpty(&master, &slave, NULL, NULL, NULL) == 0);
  MUST(setsid() > 0 && ioctl(slave, TIOCSCTTY, 0) == 0);
  signal(SIGHUP, SIG_IGN);
  pid_t job = fork();
  if (job == 0) {
    setpgid(0, 0);
    role("background.job");
    nap(SOON);
    get(slave);
    _exit(0);
  }
  nap(HOLD);
  kill(job, SIGKILL);
  everybody();
}

/* Somebody pressed Ctrl-S in the terminal that a program writes to, and Ctrl-Q in the end. */
static void paused(void) {
  int master, slave;
  MUST(openpty(&master, &slave, NULL, NULL, NULL) == 0);
  if (fork() == 0) {
    close(master);
    MUST(setsid() > 0 && ioctl(slave, TIOCSCTTY, 0) == 0);
    role("paused.writer");
    nap(SOON);
    MUST(write(slave, "x", 1) == 1);
    nap(SOON);
    _exit(0);
  }
  close(slave);
  role("paused.terminal");
  MUST(write(master, "\023", 1) == 1);
  struct pollfd p = {master, POLLIN, 0};
  poll(&p, 1, HOLD);
  MUST(write(master, "\021", 1) == 1);
  everybody();
}

int main(void) {
  process(paused);
  process(semaphore_taken);
  process(semaphore_lost);
  process(queue_without_sender);
  process(posix_queue);
  process(lease);
  process(permission);
  process(background);
  return everybody();
}
