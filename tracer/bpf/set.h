/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Several descriptors waited for at once: poll, select, epoll. */
#ifndef PG_SET_H
#define PG_SET_H

/* Add a descriptor to the set in `s`. */
int __noinline add_member(struct scratch *s, u64 blocked, u32 fd, u32 which)
{
	struct task_struct *task = (void *)blocked;
	if (!s)
		return 0;
	u32 n = s->set.count;
	if (n >= SET_MAX) {
		s->set.more++;
		return 0;
	}
	struct object o = { .kind = K_NONE, .fd = fd };
	fd_object(&o, (u64)task, fd, which);
	if (o.kind == K_NONE)
		return 0;
	struct member *m = &s->set.members[BOUND(n, SET_MAX)];
	m->id = o.id;
	m->peer = o.peer;
	m->kind = o.kind;
	m->fd = fd;
	s->set.count = n + 1;
	return 0;
}

static __always_inline void begin_set(struct scratch *s)
{
	s->set.type = REC_SET;
	s->set.count = 0;
	s->set.more = 0;
}

#define SET_SEED 0x5851f42d4c957f2dULL

static __always_inline u64 set_hash(u64 h, u32 kind, u64 id, u64 peer)
{
	return mix(mix(mix(h, kind), id), peer);
}

/* Name the set by its members and send it if it is new. One member alone stands for itself. */
static __always_inline void end_set(struct scratch *s, struct object *o)
{
	u64 h = SET_SEED;
	for (int i = 0; i < SET_MAX; i++) {
		if (i >= s->set.count)
			break;
		struct member *m = &s->set.members[i];
		h = set_hash(h, m->kind, m->id, m->peer);
	}
	if (!s->set.count)
		return;
	if (s->set.count == 1 && !s->set.more) {
		o->kind = s->set.members[0].kind;
		o->id = s->set.members[0].id;
		o->peer = s->set.members[0].peer;
		o->fd = s->set.members[0].fd;
		return;
	}
	o->kind = K_SET;
	o->id = h;
	o->peer = 0;
	if (!unsent(h))
		return;
	s->set.kind = K_SET;
	s->set.id = h;
	if (send(&s->set, sizeof(s->set)))
		mark_sent(h);
}

/* Errors and hang-ups (POLLERR, POLLHUP, POLLNVAL) are told of each descriptor of poll(2), also unasked. */
#define POLL_UNASKED 0x38

/*
 * What a struct pollfd asks for beside them; 0 of one that is left out. With hang-ups alone nobody is waited for to bring
 * something. Arithmetic only, as in `ones`.
 */
static __always_inline u32 poll_asks(u64 pollfd)
{
	u32 left_out = (u32)pollfd >> 31;
	return (u32)(pollfd >> 32) & 0xffff & ~POLL_UNASKED & (left_out - 1);
}

static __always_inline void poll_object(struct scratch *s, struct thread *t, struct task_struct *task, u32 n, u32 which)
{
	if (!n || !s->words_read)
		return;
	begin_set(s);
	if (n > POLL_MAX)
		s->set.more = n - POLL_MAX;
	u32 asks = 0;
	for (u32 i = 0; i < POLL_MAX; i++)
		asks |= poll_asks(s->words[i]) & (u32)((s32)(i - n) >> 31);
	/* 1 when none asks for anything: then they are what it waits for after all. */
	u32 none = (asks - 1) >> 31;
	for (u32 i = 0; i < POLL_MAX; i++) {
		if (i >= n)
			break;
		u64 w = s->words[i];
		if ((s32)w >= 0 && (poll_asks(w) | none))
			add_member(s, (u64)task, (s32)w, which);
	}
	end_set(s, &t->object);
}

/* How many bits are set. Arithmetic only: each branch would double what the verifier follows. */
static __always_inline u32 ones(u64 x)
{
	x -= (x >> 1) & 0x5555555555555555ULL;
	x = (x & 0x3333333333333333ULL) + ((x >> 2) & 0x3333333333333333ULL);
	x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	return (x * 0x0101010101010101ULL) >> 56;
}

static __always_inline void select_object(struct scratch *s, struct thread *t, struct task_struct *task, u32 n,
					u32 which)
{
	if (!s->words_read)
		return;
	begin_set(s);
	for (u32 i = 0; i < 4; i++) {
		u64 bits = s->words[i] | s->words[i + 4] | s->words[i + 8];
		for (u32 k = 0; k < POLL_MAX; k++) {
			if (!bits)
				break;
			u32 at = ones((bits & -bits) - 1);
			bits &= bits - 1;
			u32 fd = i * 64 + at;
			if (fd < n && s->set.count < POLL_MAX)
				add_member(s, (u64)task, fd, which);
		}
		if (bits)
			s->set.more++;
	}
	end_set(s, &t->object);
}

/*
 * How an epoll instance watches (EPOLLEXCLUSIVE, EPOLLWAKEUP, EPOLLONESHOT, EPOLLET), and what it tells of unasked (EPOLLERR,
 * EPOLLHUP). Where nothing else is asked for, the descriptor is muted: a server that serves one client alone, or that is at
 * work for this one.
 */
#define EPOLL_UNASKED 0xf0000018

/* What an epoll instance waits for, sent at most once a second. */
int __noinline send_epoll(struct object *o, u64 file, u64 now, u32 which)
{
	if (!o)
		return 0;
	u64 hash = name_hash(o, 99);
	u64 *last = bpf_map_lookup_elem(&sent, &hash);
	if (last && now - *last < 1000000000ULL)
		return 0;
	bpf_map_update_elem(&sent, &hash, &now, BPF_ANY);
	struct scratch *s = scratch(which);
	if (!s)
		return 0;
	begin_set(s);
	struct file *f = (void *)file;
	struct eventpoll *ep = READ(f, private_data);
	struct rb_node *node = READ(ep, rbr.rb_leftmost);
	u64 off = bpf_core_field_offset(struct epitem, rbn);
	for (int i = 0; i < SET_MAX; i++) {
		if (!node)
			break;
		struct epitem *item = (void *)node - off;
		if (READ(item, event.events) & ~EPOLL_UNASKED) {
			struct file *member = READ(item, ffd.file);
			struct object of = { .kind = K_UNKNOWN };
			file_object(&of, (u64)member, which);
			u32 n = s->set.count;
			struct member *m = &s->set.members[BOUND(n, SET_MAX)];
			m->id = of.id;
			m->peer = of.peer;
			m->kind = of.kind;
			m->fd = READ(item, ffd.fd);
			s->set.count++;
		}
		/* The next node in order. */
		struct rb_node *right = READ(node, rb_right);
		if (right) {
			node = right;
			for (int k = 0; k < 8; k++) {
				struct rb_node *left = READ(node, rb_left);
				if (!left)
					break;
				node = left;
			}
			continue;
		}
		for (int k = 0; k < 8; k++) {
			struct rb_node *up = (void *)(READ(node, __rb_parent_color) & ~3UL);
			bool from_right = up && READ(up, rb_right) == node;
			node = up;
			if (!from_right)
				break;
		}
	}
	s->set.more = node ? 1 : 0;
	s->set.kind = K_EPOLL;
	s->set.id = o->id;
	send(&s->set, sizeof(s->set));
	return 0;
}

#endif
