/* What all programs of these tests do: time passes on the CPU. */
#include <time.h>

volatile unsigned long sink;

static unsigned long now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000ul + t.tv_nsec / 1000;
}

/* Computes in one place. */
__attribute__((noinline)) void stick(unsigned long us)
{
	for (unsigned long end = now_us() + us; now_us() < end;)
		sink++;
	sink++;
}
