/* Threads that receive first and wait only if there is nothing. Two serve a connection that was accepted (`t`: TCP, `u`: a
 * Unix socket): they speak first, and within each request they ask an upstream server twice. A third (`x`) has made its
 * connection, and asks over that within what it is told. A fourth (`w`, TCP) always waits first, and asks nobody. A line on
 * standard input is five of these, at once. */
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "work.h"

#define PIECES 5
static int listeners[2];

static int listener(int family)
{
	int fd = socket(family, SOCK_STREAM, 0);
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	socklen_t len = sizeof(un.sun_family) + 1 + snprintf(un.sun_path + 1, 60, "served-%d", getpid());
	int bad = family == AF_INET ? bind(fd, (void *)&in, sizeof(in)) : bind(fd, (void *)&un, len);
	if (bad || listen(fd, 8))
		abort();
	return fd;
}

static int connected(int to)
{
	struct sockaddr_storage a;
	socklen_t len = sizeof(a);
	if (getsockname(to, (void *)&a, &len))
		abort();
	int fd = socket(a.ss_family, SOCK_STREAM, 0);
	if (connect(fd, (void *)&a, len))
		abort();
	return fd;
}

static void say(int fd, char c)
{
	if (send(fd, &c, 1, 0) != 1)
		abort();
}

static char hear(int fd)
{
	char c;
	if (recv(fd, &c, 1, MSG_WAITALL) != 1)
		abort();
	return c;
}

static void *upstream(void *fd)
{
	for (;;)
		say((long)fd, hear((long)fd));
	return 0;
}

/* Who serves: its connection, that to the upstream server, or none, and whether it waits first. */
struct work {
	int fd, upstream, waits;
};

__attribute__((noinline)) void *serve(void *of)
{
	struct work *w = of;
	char line[16];
	for (;;) {
		struct pollfd p = { w->fd, POLLIN, 0 };
		if (w->waits)
			poll(&p, 1, -1);
		while (recv(w->fd, line, 16, MSG_DONTWAIT) != 16)
			poll(&p, 1, -1);
		for (int i = 0; i < 2 && !w->waits; i++) {
			int asked = w->upstream ? w->upstream : w->fd;
			say(asked, '?');
			hear(asked);
		}
		stick(atol(line + 1));
		say(w->fd, '!');
	}
	return 0;
}

int main(void)
{
	static struct work works[4];
	int clients[4];
	pthread_t thread;
	listeners[0] = listener(AF_INET);
	listeners[1] = listener(AF_UNIX);
	for (long i = 0; i < 4; i++) {
		int from = listeners[i == 1], made = connected(from), taken = accept(from, 0, 0);
		works[i].fd = i == 2 ? made : taken;
		clients[i] = i == 2 ? taken : made;
		works[i].waits = i == 3;
		if (i < 2) {
			works[i].upstream = connected(listeners[0]);
			taken = accept(listeners[0], 0, 0);
			if (pthread_create(&thread, 0, upstream, (void *)(long)taken))
				return 1;
			say(works[i].fd, 'g');
			hear(clients[i]);
		}
		if (pthread_create(&thread, 0, serve, &works[i]))
			return 1;
	}
	char line[16], all[16 * PIECES];
	while (read(0, line, 16) == 16) {
		int which = *line == 't' ? 0 : *line == 'u' ? 1 : *line == 'w' ? 3 : 2, fd = clients[which];
		for (int i = 0; i < PIECES; i++)
			memcpy(all + 16 * i, line, 16);
		if (which == 2) {
			/* One at a time, when it waits: its answers come by the same way. */
			for (int i = 0; i < PIECES; i++) {
				usleep(3000);
				if (send(fd, line, 16, 0) != 16)
					return 1;
				for (int asked = 0; asked < 2; asked++)
					say(fd, hear(fd));
				hear(fd);
			}
		} else {
			if (send(fd, all, sizeof(all), 0) != sizeof(all))
				return 1;
			for (int i = 0; i < PIECES; i++)
				hear(fd);
		}
		if (write(1, "", 1) != 1)
			return 1;
	}
	return 0;
}
