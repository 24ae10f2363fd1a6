/* A server on io_uring, by the system calls themselves. It reads its work, one letter each, from standard input: `q` is
 * done at once, `w` takes some work, `s` naps for 600 ms, before which a request is handed in and not waited for. It
 * answers each with one byte. Requests and answers go through one ring, and what there is to do next is waited for in one
 * place: a turn of the loop is a unit. */
#define _GNU_SOURCE
#include <linux/io_uring.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { REQUEST = 1, ANSWER, HINT };

static struct {
	int fd;
	unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask, new;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
} ring;
static volatile unsigned long work;
static char letter;

static int make_ring(void)
{
	struct io_uring_params p = { 0 };
	ring.fd = syscall(SYS_io_uring_setup, 16, &p);
	if (ring.fd < 0)
		return -1;
	int prot = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_POPULATE;
	char *sq = mmap(0, p.sq_off.array + p.sq_entries * sizeof(unsigned), prot, flags, ring.fd, IORING_OFF_SQ_RING);
	char *cq = mmap(0, p.cq_off.cqes + p.cq_entries * sizeof(*ring.cqes), prot, flags, ring.fd, IORING_OFF_CQ_RING);
	ring.sqes = mmap(0, p.sq_entries * sizeof(*ring.sqes), prot, flags, ring.fd, IORING_OFF_SQES);
	if (sq == MAP_FAILED || cq == MAP_FAILED || ring.sqes == MAP_FAILED)
		return -1;
	ring.sq_tail = (void *)(sq + p.sq_off.tail);
	ring.sq_mask = (void *)(sq + p.sq_off.ring_mask);
	ring.sq_array = (void *)(sq + p.sq_off.array);
	ring.cq_head = (void *)(cq + p.cq_off.head);
	ring.cq_tail = (void *)(cq + p.cq_off.tail);
	ring.cq_mask = (void *)(cq + p.cq_off.ring_mask);
	ring.cqes = (void *)(cq + p.cq_off.cqes);
	return 0;
}

static void add(int op, int fd, void *at, uint64_t what)
{
	unsigned i = *ring.sq_tail & *ring.sq_mask;
	struct io_uring_sqe *e = &ring.sqes[i];
	memset(e, 0, sizeof(*e));
	e->opcode = op;
	e->fd = fd;
	e->addr = (uintptr_t)at;
	e->len = at ? 1 : 0;
	e->off = -1;
	e->user_data = what;
	ring.sq_array[i] = i;
	__atomic_store_n(ring.sq_tail, *ring.sq_tail + 1, __ATOMIC_RELEASE);
	ring.new++;
}

__attribute__((noinline)) static void submit(void)
{
	syscall(SYS_io_uring_enter, ring.fd, ring.new, 0, 0, 0, 0);
	ring.new = 0;
	work++;
}

__attribute__((noinline)) static int submit_and_wait(void)
{
	long done = syscall(SYS_io_uring_enter, ring.fd, ring.new, 1, IORING_ENTER_GETEVENTS, 0, 0);
	ring.new = 0;
	return done >= 0;
}

static long now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

__attribute__((noinline)) static void grind(long ms)
{
	for (long end = now_ms() + ms; now_ms() < end;)
		for (int i = 0; i < 100000; i++)
			work += i;
}

__attribute__((noinline)) static void nap(void)
{
	struct timespec t = { 0, 600000000 };
	nanosleep(&t, 0);
	work++;
}

__attribute__((noinline)) static void handle(char what)
{
	if (what == 'w')
		grind(2);
	if (what == 's') {
		add(IORING_OP_NOP, -1, 0, HINT);
		submit();
		nap();
	}
	work++;
}

/* Returns whether there is more. */
__attribute__((noinline)) static int reap(void)
{
	unsigned head = *ring.cq_head;
	for (; head != __atomic_load_n(ring.cq_tail, __ATOMIC_ACQUIRE); head++) {
		struct io_uring_cqe *c = &ring.cqes[head & *ring.cq_mask];
		if (c->user_data != REQUEST)
			continue;
		if (c->res != 1)
			return 0;
		handle(letter);
		add(IORING_OP_WRITE, 1, &letter, ANSWER);
		add(IORING_OP_READ, 0, &letter, REQUEST);
	}
	__atomic_store_n(ring.cq_head, head, __ATOMIC_RELEASE);
	return 1;
}

__attribute__((noinline)) static void serve(void)
{
	add(IORING_OP_READ, 0, &letter, REQUEST);
	while (submit_and_wait() && reap())
		work++;
}

int main(void)
{
	if (make_ring())
		return 77;
	serve();
	return 0;
}
