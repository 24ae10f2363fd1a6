/* A server of three threads that each take a connection and keep it until the client closes it (keep-alive). A request is a
 * line of its length in milliseconds, the answer a byte. `keep` writes the port that it listens on. */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int listener;
static volatile unsigned long served;

__attribute__((noinline)) static void nap(long ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000 };
	nanosleep(&t, 0);
	served++;
}

/* The rest of a line may come later. */
__attribute__((noinline)) static int read_request(int from, char *line, int size)
{
	for (int n = 0; n < size; n++) {
		if (recv(from, line + n, 1, 0) != 1)
			return 0;
		if (line[n] == '\n') {
			line[n] = 0;
			return 1;
		}
	}
	return 0;
}

__attribute__((noinline)) static int answer(int to, const char *line)
{
	nap(atol(line));
	return send(to, "+", 1, MSG_NOSIGNAL) == 1;
}

__attribute__((noinline)) static void keep(int connection)
{
	char line[32];
	while (read_request(connection, line, sizeof(line)) && answer(connection, line))
		served++;
	served++;
}

__attribute__((noinline)) static void *serve(void *unused)
{
	for (;;) {
		int connection = accept(listener, 0, 0);
		if (connection < 0)
			abort();
		keep(connection);
		close(connection);
	}
	return unused;
}

int main(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof(at);
	pthread_t t;
	listener = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (void *)&at, size) || listen(listener, 16) || getsockname(listener, (void *)&at, &size))
		abort();
	printf("%d\n", ntohs(at.sin_port));
	fflush(stdout);
	for (int i = 0; i < 2; i++)
		if (pthread_create(&t, 0, serve, 0))
			abort();
	serve(0);
	return 0;
}
