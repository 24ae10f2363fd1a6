/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What a system call waits on or acts on, from its number and arguments: the object, and of a wait the
 * operation, value and time-out. x86-64 numbers.
 */
#ifndef PG_CALL_H
#define PG_CALL_H

enum class {
	C_NONE = 0,
	C_FD,	    /* the first argument is the descriptor */
	C_FD_RECV,  /* the same, with the socket's receive time-out */
	C_FD_SEND,  /* the same, with its send time-out */
	C_FD_PAIR,  /* sendfile: first and second */
	C_SPLICE,   /* first and third */
	C_FLOCK,
	C_FCNTL,
	C_FUTEX,
	C_FUTEX2,
	C_POLL,
	C_PPOLL,
	C_SELECT,
	C_PSELECT,
	C_EPOLL,
	C_EPOLL2,
	C_NANOSLEEP,
	C_CLOCK_NANOSLEEP,
	C_WAIT4,
	C_WAITID,
	C_SYSV,
	C_SEMTIMEDOP,
	C_RECVMMSG,
	C_SIGTIMEDWAIT,
	C_PATH,	  /* the first argument is a path */
	C_PATHAT, /* the second is */
	C_EXIT,
	C_RESTART,
};

#define CALLS 512
const volatile u8 class_of[CALLS] = {
	[0] = C_FD_RECV, [1] = C_FD_SEND, [17] = C_FD, [18] = C_FD, [19] = C_FD_RECV, [20] = C_FD_SEND, /* read.. writev */
	[2] = C_PATH, [4] = C_PATH, [6] = C_PATH, [21] = C_PATH, [59] = C_PATH, [76] = C_PATH, [80] = C_PATH,
	[82] = C_PATH, [83] = C_PATH, [84] = C_PATH, [85] = C_PATH, [87] = C_PATH, [89] = C_PATH, [137] = C_PATH,
	[257] = C_PATHAT, [258] = C_PATHAT, [262] = C_PATHAT, [263] = C_PATHAT, [264] = C_PATHAT, [267] = C_PATHAT,
	[269] = C_PATHAT, [332] = C_PATHAT, [437] = C_PATHAT, [439] = C_PATHAT,
	[5] = C_FD, [8] = C_FD, [16] = C_FD, [74] = C_FD, [75] = C_FD, [77] = C_FD, [78] = C_FD, [217] = C_FD,
	[277] = C_FD, [285] = C_FD, [306] = C_FD, /* fstat, lseek, ioctl, fsync.. syncfs */
	[295] = C_FD, [296] = C_FD, [327] = C_FD_RECV, [328] = C_FD_SEND, /* preadv.. pwritev2 */
	[42] = C_FD_SEND, [43] = C_FD_RECV, [288] = C_FD_RECV, [48] = C_FD, /* connect, accept, accept4, shutdown */
	[44] = C_FD_SEND, [45] = C_FD_RECV, [46] = C_FD_SEND, [47] = C_FD_RECV, [307] = C_FD_SEND,
	[299] = C_RECVMMSG, [40] = C_FD_PAIR, [326] = C_SPLICE, [275] = C_SPLICE, [276] = C_FD_PAIR, [278] = C_FD,
	[286] = C_FD, [287] = C_FD, [426] = C_FD, /* timerfd_settime, timerfd_gettime, io_uring_enter */
	[73] = C_FLOCK, [72] = C_FCNTL,
	[202] = C_FUTEX, [455] = C_FUTEX2, [454] = C_FUTEX2,
	[7] = C_POLL, [271] = C_PPOLL, [23] = C_SELECT, [270] = C_PSELECT,
	[232] = C_EPOLL, [281] = C_EPOLL, [441] = C_EPOLL2,
	[35] = C_NANOSLEEP, [230] = C_CLOCK_NANOSLEEP,
	[61] = C_WAIT4, [247] = C_WAITID,
	[65] = C_SYSV, [69] = C_SYSV, [70] = C_SYSV, [220] = C_SEMTIMEDOP, [66] = C_SYSV, [71] = C_SYSV,
	[242] = C_SYSV, [243] = C_SYSV, [128] = C_SIGTIMEDWAIT,
	[60] = C_EXIT, [231] = C_EXIT, [219] = C_RESTART,
};

/* Is `nr` one that restart_syscall may stand for? */
static __always_inline bool restarts(u32 class)
{
	return class == C_NANOSLEEP || class == C_CLOCK_NANOSLEEP || class == C_POLL || class == C_FUTEX;
}

/* User memory: of the current thread with faults off, or (task iterator, may sleep) of any. */
#define READ_USER(remote, task, to, size, from)                                                     \
	((remote) ? bpf_copy_from_user_task(to, size, (const void *)(from), task, 0)                \
		  : bpf_probe_read_user(to, size, (const void *)(from)))

#define NO_TIMEOUT (~0ULL)

static __always_inline u64 timeout_ms(s32 ms)
{
	return ms < 0 ? NO_TIMEOUT : (u64)ms * 1000000 + !ms;
}

/* A timespec (or timeval, `micro`) as ns; `at` NULL: none. Unreadable: 0, unknown. */
static __always_inline u64 timeout_at(bool remote, struct task_struct *task, u64 at, bool micro)
{
	u64 t[2] = {};
	if (!at)
		return NO_TIMEOUT;
	if (READ_USER(remote, task, t, sizeof(t), at))
		return 0;
	u64 ns = t[0] * 1000000000ULL + (micro ? t[1] * 1000 : t[1]);
	return ns + !ns;
}

/* A moment of `clock` (0 real time, else monotonic) as ns from `now`. */
static __always_inline u64 from_now(u64 moment, bool real, u64 now)
{
	if (moment == NO_TIMEOUT || !moment)
		return moment;
	if (real) {
		struct control *c = controls();
		if (!c || !c->realtime_offset)
			return 0;
		now += c->realtime_offset;
	}
	return moment > now ? moment - now : 1;
}

static __always_inline u64 socket_timeout(struct task_struct *task, u32 fd, bool send)
{
	struct file *f = (void *)file_of(task, fd);
	struct socket *so = READ(f, private_data);
	struct sock *sk = READ(so, sk);
	u64 jiffies = send ? READ(sk, sk_sndtimeo) : READ(sk, sk_rcvtimeo);
	return jiffies >= (1ULL << 62) ? NO_TIMEOUT : jiffies * jiffy_ns;
}

static __always_inline void futex_object(struct object *o, u64 address, u32 tgid)
{
	o->kind = K_FUTEX;
	o->id = address;
	o->peer = tgid;
}

static __always_inline void lock_object(struct thread *memo, struct task_struct *task, struct object *o, u32 fd,
					u32 which)
{
	fd_object(memo, task, o, fd, which);
	if (o->kind != K_FILE)
		return;
	o->kind = K_FILE_LOCK;
	u64 file = file_of(task, fd);
	send_path(o, file, which);
}

/* A path given to a system call: an object known by its name only. */
static __always_inline void path_object(bool remote, struct task_struct *task, struct object *o, u64 at, u32 which)
{
	struct scratch *s = scratch(which);
	if (!s)
		return;
	struct rec_name *r = &s->name;
	__builtin_memset(r->text, 0, 128);
	if (remote) {
		if (bpf_copy_from_user_task(r->text, 127, (void *)at, task, 0))
			return;
	} else if (bpf_probe_read_user_str(r->text, 127, (void *)at) <= 1) {
		return;
	}
	u64 h = 0x2545f4914f6cdd1dULL;
	u64 *words = (u64 *)r->text;
	bool ended = false;
	for (int i = 0; i < 16; i++) {
		u64 w = words[i];
		u64 zero = (w - 0x0101010101010101ULL) & ~w & 0x8080808080808080ULL;
		if (zero && !ended) {
			/* Keep the bytes before the NUL. */
			u64 below = (zero & -zero) - 1;
			w &= below >> 7;
			ended = true;
			h = mix(h, w);
			continue;
		}
		if (!ended)
			h = mix(h, w);
	}
	o->kind = K_FILE;
	o->id = h;
	o->peer = 0;
	u64 hash = name_hash(o, NAME_TEXT);
	if (!unsent(hash))
		return;
	r->type = REC_NAME;
	r->kind = o->kind;
	r->form = NAME_TEXT;
	r->len = 128;
	r->id = o->id;
	r->peer = 0;
	if (send(r, sizeof(*r)))
		mark_sent(hash);
}

/* Add a descriptor to the set in `s`. */
static __always_inline void add_member(struct scratch *s, struct task_struct *task, u32 fd, u32 which)
{
	u32 n = s->set.count;
	if (n >= SET_MAX) {
		s->set.more++;
		return;
	}
	u64 file = file_of(task, fd);
	if (!file)
		return;
	struct object o = { .kind = K_UNKNOWN, .fd = fd };
	file_object(&o, file, which);
	struct member *m = &s->set.members[BOUND(n, SET_MAX)];
	m->id = o.id;
	m->peer = o.peer;
	m->kind = o.kind;
	m->fd = fd;
	s->set.count = n + 1;
}

static __always_inline void begin_set(struct scratch *s)
{
	s->set.type = REC_SET;
	s->set.count = 0;
	s->set.more = 0;
}

/* Name the set by its members and send it if it is new. One member alone stands for itself. */
static __always_inline void end_set(struct scratch *s, struct object *o)
{
	u64 h = 0x5851f42d4c957f2dULL;
	for (int i = 0; i < SET_MAX; i++) {
		if (i >= s->set.count)
			break;
		struct member *m = &s->set.members[i];
		h = mix(mix(mix(h, m->kind), m->id), m->peer);
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

#define POLL_MAX 16

static __always_inline void poll_object(bool remote, struct task_struct *task, struct object *o, u64 at, u32 n,
					u32 which)
{
	struct scratch *s = scratch(which);
	if (!s || !n)
		return;
	begin_set(s);
	if (n > POLL_MAX)
		s->set.more = n - POLL_MAX;
	if (READ_USER(remote, task, s->words, 8, at))
		return;
	for (u32 i = 0; i < POLL_MAX; i++) {
		if (i >= n)
			break;
		if (i && READ_USER(remote, task, &s->words[i], 8, at + i * 8))
			break;
		s32 fd = (s32)s->words[i];
		if (fd >= 0)
			add_member(s, task, fd, which);
	}
	end_set(s, o);
}

static __always_inline void select_object(bool remote, struct task_struct *task, struct object *o,
					  struct regs *args, u32 which)
{
	struct scratch *s = scratch(which);
	u32 n = args->di;
	if (!s || !n)
		return;
	begin_set(s);
	/* Descriptors below 256, of all three sets. */
	for (int i = 0; i < 4; i++) {
		u64 bits = 0;
		if (i * 64 < n) {
			u64 part = 0;
			if (args->si && !READ_USER(remote, task, &part, 8, args->si + i * 8))
				bits |= part;
			if (args->dx && !READ_USER(remote, task, &part, 8, args->dx + i * 8))
				bits |= part;
			if (args->r10 && !READ_USER(remote, task, &part, 8, args->r10 + i * 8))
				bits |= part;
		}
		s->words[i] = bits;
	}
	for (int i = 0; i < 256; i++) {
		if (i >= n || s->set.count >= POLL_MAX)
			break;
		u32 at = i >> 6;
		if (s->words[BOUND(at, 4)] >> (i & 63) & 1)
			add_member(s, task, i, which);
	}
	end_set(s, o);
}

/* What is in an epoll instance, sent at most once a second. */
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

/* The object alone: of the call that a waker is in, or that just returned. */
static __always_inline void acted_on(struct thread *t, struct task_struct *task, u32 tgid, struct object *o, u32 nr,
				     struct regs *args, u32 which)
{
	u32 class = class_of[nr & (CALLS - 1)];
	o->kind = K_NONE;
	if (nr >= CALLS)
		return;
	if (class >= C_FD && class <= C_FD_PAIR)
		fd_object(t, task, o, args->di, which);
	else if (class == C_SPLICE)
		fd_object(t, task, o, args->dx, which);
	else if (class == C_RECVMMSG)
		fd_object(t, task, o, args->di, which);
	else if (class == C_FUTEX || class == C_FUTEX2)
		futex_object(o, args->di, tgid);
	else if (class == C_FLOCK || class == C_FCNTL)
		lock_object(t, task, o, args->di, which);
	else if (class == C_SYSV || class == C_SEMTIMEDOP) {
		o->kind = K_SYSV;
		o->id = (u32)args->di;
	} else if (class == C_EXIT) {
		/* A thread that ends wakes those who join it through this word. */
		u64 word = (u64)READ(task, clear_child_tid);
		if (word)
			futex_object(o, word, tgid);
	} else if (class == C_PATH || class == C_PATHAT) {
		path_object(false, task, o, class == C_PATH ? args->di : args->si, which);
	}
}

/* Everything about the call that a thread blocks in. */
static __always_inline void waits_on(bool remote, struct thread *t, struct task_struct *task, u32 tgid,
				     struct regs *args, u64 now, u32 which)
{
	struct object *o = &t->object;
	u32 nr = t->call;
	u32 class = class_of[nr & (CALLS - 1)];
	struct thread *memo = remote ? 0 : t;
	o->kind = K_NONE;
	o->id = 0;
	o->peer = 0;
	o->fd = ~0U;
	t->op = 0;
	t->value = 0;
	t->timeout = 0;
	if (nr >= CALLS)
		return;
	if (class == C_RESTART) {
		nr = t->before_restart;
		class = class_of[nr & (CALLS - 1)];
		if (!restarts(class))
			return;
		t->call = nr;
	} else {
		t->before_restart = nr;
	}
	switch (class) {
	case C_FD_RECV:
	case C_FD_SEND:
	case C_FD:
	case C_RECVMMSG:
		fd_object(memo, task, o, args->di, which);
		t->value = args->dx;
		if (class == C_FD)
			t->op = args->si;
		else if (o->kind >= K_UNIX_STREAM && o->kind <= K_SOCKET)
			t->timeout = class == C_RECVMMSG ? timeout_at(remote, task, args->r8, false)
							 : socket_timeout(task, args->di, class == C_FD_SEND);
		break;
	case C_FD_PAIR:
	case C_SPLICE: {
		struct scratch *s = scratch(which);
		if (!s)
			break;
		begin_set(s);
		add_member(s, task, args->di, which);
		add_member(s, task, class == C_SPLICE ? args->dx : args->si, which);
		end_set(s, o);
		break;
	}
	case C_FLOCK:
		lock_object(memo, task, o, args->di, which);
		t->op = args->si;
		break;
	case C_FCNTL: {
		lock_object(memo, task, o, args->di, which);
		t->op = args->si;
		u16 type = 0;
		if (!READ_USER(remote, task, &type, 2, args->dx))
			t->value = type;
		break;
	}
	case C_FUTEX: {
		u32 op = args->si, plain = op & 127;
		futex_object(o, args->di, tgid);
		t->op = op;
		t->value = args->dx;
		u64 timeout = timeout_at(remote, task, args->r10, false);
		t->timeout = plain == 0 ? timeout : from_now(timeout, plain == 6 || (op & 256), now);
		break;
	}
	case C_FUTEX2:
		futex_object(o, args->di, tgid);
		t->op = args->r10;
		t->value = args->si;
		t->timeout = from_now(timeout_at(remote, task, args->r8, false), !args->r9, now);
		break;
	case C_POLL:
		poll_object(remote, task, o, args->di, args->si, which);
		t->value = args->si;
		t->timeout = timeout_ms(args->dx);
		break;
	case C_PPOLL:
		poll_object(remote, task, o, args->di, args->si, which);
		t->value = args->si;
		t->timeout = timeout_at(remote, task, args->dx, false);
		break;
	case C_SELECT:
	case C_PSELECT:
		select_object(remote, task, o, args, which);
		t->value = args->di;
		t->timeout = timeout_at(remote, task, args->r8, class == C_SELECT);
		break;
	case C_EPOLL:
	case C_EPOLL2: {
		fd_object(memo, task, o, args->di, which);
		t->timeout = class == C_EPOLL ? timeout_ms(args->r10) : timeout_at(remote, task, args->r10, false);
		u64 file = file_of(task, args->di);
		if (o->kind == K_EPOLL && file)
			send_epoll(o, file, now, which);
		break;
	}
	case C_NANOSLEEP:
		t->timeout = timeout_at(remote, task, args->di, false);
		break;
	case C_CLOCK_NANOSLEEP: {
		u64 timeout = timeout_at(remote, task, args->dx, false);
		t->op = args->di;
		t->timeout = args->si & 1 ? from_now(timeout, !args->di, now) : timeout;
		break;
	}
	case C_WAIT4:
		o->kind = K_CHILD;
		o->id = (s32)args->di > 0 ? (u32)args->di : 0;
		t->op = args->dx;
		t->value = args->di;
		t->timeout = NO_TIMEOUT;
		break;
	case C_WAITID:
		o->kind = K_CHILD;
		t->op = args->r10;
		t->value = args->si;
		t->timeout = NO_TIMEOUT;
		if (args->di == 1)
			o->id = (u32)args->si;
		else if (args->di == 3)
			fd_object(memo, task, o, args->si, which);
		break;
	case C_SYSV:
	case C_SEMTIMEDOP:
		o->kind = K_SYSV;
		o->id = (u32)args->di;
		if (class == C_SEMTIMEDOP)
			t->timeout = timeout_at(remote, task, args->r10, false);
		break;
	case C_SIGTIMEDWAIT:
		t->timeout = timeout_at(remote, task, args->dx, false);
		break;
	case C_PATH:
	case C_PATHAT:
		path_object(remote, task, o, class == C_PATH ? args->di : args->si, which);
		break;
	}
}

#endif
