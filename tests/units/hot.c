/* One turn of the loop for each byte on standard input: four kinds of work, of which the last calls a function three million
 * times. */
#include <poll.h>
#include <time.h>
#include <unistd.h>

volatile unsigned long sink;

static void spin(unsigned long us)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	unsigned long end = t.tv_sec * 1000000ul + t.tv_nsec / 1000 + us;
	do {
		for (int i = 0; i < 1000; i++)
			sink++;
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	} while (t.tv_sec * 1000000ul + t.tv_nsec / 1000 < end);
}

__attribute__((noinline)) int leaf(int i)
{
	return sink ^ i;
}

/* Keeps a register: it begins with a push, at which a probe needs no step. */
__attribute__((noinline)) int tiny(int i)
{
	return leaf(i) + i;
}

__attribute__((noinline)) void brief(void)
{
	spin(300);
	sink++;
}

__attribute__((noinline)) void longer(void)
{
	spin(1000);
	sink++;
}

__attribute__((noinline)) void longest(void)
{
	spin(3000);
	sink++;
}

__attribute__((noinline)) void often(void)
{
	for (int i = 0; i < 3000000; i++)
		sink += tiny(i);
	sink++;
}

__attribute__((noinline)) void handle(char kind)
{
	switch (kind) {
	case 'a': brief(); break;
	case 'b': longer(); break;
	case 'c': longest(); break;
	case 'd': often(); break;
	}
	sink++;
}

int main(void)
{
	char kind;
	for (;;) {
		struct pollfd in = { .fd = 0, .events = POLLIN };
		poll(&in, 1, -1);
		if (read(0, &kind, 1) != 1)
			return 0;
		handle(kind);
		if (write(1, "", 1) != 1)
			return 1;
	}
}
