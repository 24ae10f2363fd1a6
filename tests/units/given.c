/* A server that reads its work, one letter each, from a pipe: `q` is done at once, `s` takes a nap of 600 ms, `j` leaves
 * its function by longjmp and naps then. It answers each with whether somebody listens to its static probes, which are
 * written as sys/sdt.h does. */
#include <poll.h>
#include <setjmp.h>
#include <time.h>
#include <unistd.h>

#define PROBE(name, counter)                                                                            \
	__asm__ volatile("990: nop\n"                                                                   \
			 ".pushsection .note.stapsdt,\"\",\"note\"\n"                                   \
			 ".balign 4\n.4byte 992f-991f, 994f-993f, 3\n"                                  \
			 "991: .asciz \"stapsdt\"\n992: .balign 4\n"                                    \
			 "993: .8byte 990b\n.8byte _.stapsdt.base\n.8byte " counter "\n"                \
			 ".asciz \"shop\"\n.asciz \"" name "\"\n.asciz \"\"\n994: .balign 4\n"          \
			 ".popsection\n"                                                                \
			 ".ifndef _.stapsdt.base\n"                                                     \
			 ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"        \
			 ".weak _.stapsdt.base\n.hidden _.stapsdt.base\n"                               \
			 "_.stapsdt.base: .space 1\n.size _.stapsdt.base, 1\n.popsection\n.endif\n")

__attribute__((used, section(".probes"))) volatile unsigned short shop_order__start_semaphore;
static jmp_buf out;
static volatile unsigned long work;

__attribute__((noinline)) static void nap(void)
{
	struct timespec t = { 0, 600000000 };
	nanosleep(&t, 0);
	work++;
}

__attribute__((noinline)) static void nap_after_jump(void)
{
	nap();
	work++;
}

__attribute__((noinline)) static void quick(void)
{
	work++;
}

/* Calls itself: the outermost call is the unit. */
__attribute__((noinline)) static int serve(char what, int depth)
{
	if (depth) {
		int done = serve(what, depth - 1);
		work++;
		return done;
	}
	if (what == 's')
		nap();
	else if (what == 'j')
		longjmp(out, 1);
	else
		quick();
	return 1;
}

int main(void)
{
	for (;;) {
		struct pollfd p = { 0, POLLIN, 0 };
		char what;
		if (poll(&p, 1, -1) != 1 || read(0, &what, 1) != 1)
			return 0;
		PROBE("order__start", "shop_order__start_semaphore");
		if (setjmp(out))
			nap_after_jump();
		else
			serve(what, 2);
		PROBE("order__done", "0");
		char listens = shop_order__start_semaphore ? 'y' : 'n';
		if (write(1, &listens, 1) != 1)
			return 1;
	}
}
