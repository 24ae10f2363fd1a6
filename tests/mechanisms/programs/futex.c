/* Everything in glibc that waits on a futex word. */
#include "truth.h"
#include <sys/mman.h>
#include <semaphore.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static sem_t semaphore;
static int ready;

static void *lock_waiter(void *name) {
  role(name);
  MUST(pthread_mutex_lock(&mutex) == 0);
  MUST(pthread_mutex_unlock(&mutex) == 0);
  nap(SOON);
  return NULL;
}

/* The owner computes or sleeps, and gives the mutex back. */
static void hand_off(char *waiter, const char *owner) {
  role(owner);
  MUST(pthread_mutex_lock(&mutex) == 0);
  pthread_t t = thread(lock_waiter, waiter);
  nap(HOLD);
  MUST(pthread_mutex_unlock(&mutex) == 0);
  pthread_join(t, NULL);
}

static void plain(void) { hand_off("mutex.waiter", "mutex.owner"); }

static void inherits(void) {
  pthread_mutexattr_t a;
  pthread_mutexattr_init(&a);
  pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT);
  MUST(pthread_mutex_init(&mutex, &a) == 0);
  hand_off("pi.waiter", "pi.owner");
}

static void *timed_waiter(void *arg) {
  (void)arg;
  role("timedlock.waiter");
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  t.tv_sec += 2;
  MUST(pthread_mutex_timedlock(&mutex, &t) == ETIMEDOUT);
  nap(SOON);
  return NULL;
}

/* The wait ends by its time-out: nobody wakes it, but somebody has the mutex. */
static void timedlock(void) {
  role("timedlock.owner");
  MUST(pthread_mutex_lock(&mutex) == 0);
  pthread_t t = thread(timed_waiter, NULL);
  nap(HOLD);
  pthread_join(t, NULL);
}

static void *reader(void *arg) {
  (void)arg;
  role("rwread.waiter");
  MUST(pthread_rwlock_rdlock(&rwlock) == 0);
  nap(SOON);
  return NULL;
}

static void rwlock_of_a_writer(void) {
  role("rwread.owner");
  MUST(pthread_rwlock_wrlock(&rwlock) == 0);
  pthread_t t = thread(reader, NULL);
  nap(HOLD);
  MUST(pthread_rwlock_unlock(&rwlock) == 0);
  pthread_join(t, NULL);
}

static void *writer(void *arg) {
  (void)arg;
  role("rwwrite.waiter");
  MUST(pthread_rwlock_wrlock(&rwlock) == 0);
  nap(SOON);
  return NULL;
}

/* glibc counts readers, it does not name them. */
static void rwlock_of_a_reader(void) {
  role("rwwrite.reader");
  MUST(pthread_rwlock_rdlock(&rwlock) == 0);
  pthread_t t = thread(writer, NULL);
  nap(HOLD);
  MUST(pthread_rwlock_unlock(&rwlock) == 0);
  pthread_join(t, NULL);
}

static void *condition_waiter(void *name) {
  role(name);
  MUST(pthread_mutex_lock(&mutex) == 0);
  while (!ready) pthread_cond_wait(&condition, &mutex);
  MUST(pthread_mutex_unlock(&mutex) == 0);
  nap(SOON);
  return NULL;
}

static void condition_signalled(void) {
  role("condvar.signaller");
  pthread_t t = thread(condition_waiter, "condvar.waiter");
  nap(HOLD);
  MUST(pthread_mutex_lock(&mutex) == 0);
  ready = 1;
  MUST(pthread_mutex_unlock(&mutex) == 0);
  pthread_cond_signal(&condition);
  pthread_join(t, NULL);
}

/* Nobody who could signal it is left. */
static void condition_alone(void) {
  role("lonely.main");
  thread(condition_waiter, "lonely.waiter");
  pthread_exit(NULL);
}

static void *semaphore_waiter(void *arg) {
  (void)arg;
  role("sem.waiter");
  MUST(sem_wait(&semaphore) == 0);
  nap(SOON);
  return NULL;
}

static void *named_waiter(void *named) {
  role("named.waiter");
  MUST(sem_wait(named) == 0);
  nap(SOON);
  return NULL;
}

/* Whoever makes a named one has it mapped by another name than that. */
static void semaphore_of_a_name(void) {
  role("named.poster");
  char name[32];
  snprintf(name, sizeof(name), "/pg-named-%d", getpid());
  sem_t *named = sem_open(name, O_CREAT | O_EXCL, 0600, 0);
  MUST(named != SEM_FAILED);
  pthread_t t = thread(named_waiter, named);
  nap(HOLD);
  MUST(sem_post(named) == 0);
  pthread_join(t, NULL);
  MUST(sem_unlink(name) == 0);
}

static void semaphore_posted(void) {
  role("sem.poster");
  MUST(sem_init(&semaphore, 0, 0) == 0);
  pthread_t t = thread(semaphore_waiter, NULL);
  nap(HOLD);
  MUST(sem_post(&semaphore) == 0);
  pthread_join(t, NULL);
}

static void *early(void *arg) {
  (void)arg;
  role("barrier.early");
  pthread_barrier_wait(&barrier);
  nap(SOON);
  return NULL;
}

static void barrier_reached(void) {
  role("barrier.late");
  MUST(pthread_barrier_init(&barrier, NULL, 2) == 0);
  pthread_t t = thread(early, NULL);
  nap(HOLD);
  pthread_barrier_wait(&barrier);
  pthread_join(t, NULL);
}

static void *guest(void *name) {
  role(name);
  pthread_barrier_wait(&barrier);
  return NULL;
}

static void *absent(void *arg) {
  (void)arg;
  role("party.absent");
  for (;;)
    pause();
}

/* One of three never comes; who waits for the others to end is none of them. */
static void barrier_missed(void) {
  role("party.main");
  MUST(pthread_barrier_init(&barrier, NULL, 3) == 0);
  thread(absent, NULL);
  thread(guest, "party.second");
  pthread_join(thread(guest, "party.first"), NULL);
}

/* Memory of this process and its children, of which each dies with it. */
static void *common(void) {
  void *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  MUST(m != MAP_FAILED);
  return m;
}

static void child(const char *name, int (*waits)(void *), void *at) {
  if (fork() != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  role(name);
  if (waits) waits(at);
  pause();
}

/* Of three processes one never comes; who made the barrier waits for them. */
static void barrier_of_processes(void) {
  pthread_barrier_t *b = common();
  pthread_barrierattr_t a;
  MUST(pthread_barrierattr_init(&a) == 0);
  MUST(pthread_barrierattr_setpshared(&a, PTHREAD_PROCESS_SHARED) == 0 && pthread_barrier_init(b, &a, 3) == 0);
  role("crew.maker");
  child("crew.first", (int (*)(void *))pthread_barrier_wait, b);
  child("crew.second", (int (*)(void *))pthread_barrier_wait, b);
  child("crew.absent", NULL, NULL);
  everybody();
}

/* Two wait for a semaphore, and a third that has it does something else. */
static void semaphore_of_processes(void) {
  sem_t *s = common();
  MUST(sem_init(s, 1, 0) == 0);
  role("gate.maker");
  child("gate.first", (int (*)(void *))sem_wait, s);
  child("gate.second", (int (*)(void *))sem_wait, s);
  child("gate.able", NULL, NULL);
  MUST(munmap(s, 4096) == 0);
  everybody();
}

static void *joined(void *arg) {
  (void)arg;
  role("join.ended");
  nap(HOLD);
  return NULL;
}

static void join(void) {
  role("join.waiter");
  pthread_join(thread(joined, NULL), NULL);
  nap(SOON);
}

int main(void) {
  process(plain);
  process(inherits);
  process(timedlock);
  process(rwlock_of_a_writer);
  process(rwlock_of_a_reader);
  process(condition_signalled);
  pid_t alone = process(condition_alone);
  process(semaphore_posted);
  process(semaphore_of_a_name);
  process(barrier_reached);
  pid_t missed = process(barrier_missed);
  pid_t crew = process(barrier_of_processes);
  pid_t gate = process(semaphore_of_processes);
  process(join);
  nap(HOLD + 700);
  kill(alone, SIGKILL);
  kill(missed, SIGKILL);
  kill(crew, SIGKILL);
  kill(gate, SIGKILL);
  everybody();
  return 0;
}
