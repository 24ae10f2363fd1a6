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

#define POLL_MAX 16

/* Read what the arguments point to into the scratch room: time-outs, descriptors, a path. */
static __always_inline void fetch(bool remote, struct task_struct *task, struct regs *r, struct scratch *s, u32 class)
{
	u64 time = 0;
	u32 n;
	s->time_given = 0;
	s->time_read = 0;
	switch (class) {
	case C_FUTEX:
	case C_EPOLL2:
	case C_SEMTIMEDOP:
		time = r->r10;
		break;
	case C_FUTEX2:
	case C_SELECT:
	case C_PSELECT:
	case C_RECVMMSG:
		time = r->r8;
		break;
	case C_PPOLL:
	case C_CLOCK_NANOSLEEP:
	case C_SIGTIMEDWAIT:
		time = r->dx;
		break;
	case C_NANOSLEEP:
		time = r->di;
		break;
	}
	if (time) {
		s->time_given = 1;
		s->time_read = !READ_USER(remote, task, s->time, sizeof(s->time), time);
	}
	if (class == C_POLL || class == C_PPOLL) {
		n = r->si > POLL_MAX ? POLL_MAX : r->si;
		s->words_read = n && n <= POLL_MAX && !READ_USER(remote, task, s->words, n * 8, r->di);
	} else if (class == C_SELECT || class == C_PSELECT) {
		/* Descriptors below 256, of each of the three sets. */
		n = r->di > 256 ? 4 : (r->di + 63) / 64;
		s->words_read = n && n <= 4;
		if (!r->si || !s->words_read || READ_USER(remote, task, s->words, n * 8, r->si))
			__builtin_memset(s->words, 0, 32);
		if (!r->dx || !s->words_read || READ_USER(remote, task, s->words + 4, n * 8, r->dx))
			__builtin_memset(s->words + 4, 0, 32);
		if (!r->r10 || !s->words_read || READ_USER(remote, task, s->words + 8, n * 8, r->r10))
			__builtin_memset(s->words + 8, 0, 32);
	} else if (class == C_FCNTL) {
		s->words_read = !READ_USER(remote, task, s->words, 2, r->dx);
	} else if (class == C_PATH || class == C_PATHAT) {
		u64 at = class == C_PATH ? r->di : r->si;
		__builtin_memset(s->name.text, 0, 128);
		if (remote)
			bpf_copy_from_user_task(s->name.text, 127, (void *)at, task, 0);
		else
			bpf_probe_read_user_str(s->name.text, 127, (void *)at);
	}
}

#define NO_TIMEOUT (~0ULL)

static __always_inline u64 timeout_ms(s32 ms)
{
	return ms < 0 ? NO_TIMEOUT : (u64)ms * 1000000 + !ms;
}

/* The timespec (or timeval, `micro`) that was fetched, as ns; none given: no time-out. Unreadable: 0. */
static __always_inline u64 timeout_of(struct scratch *s, bool micro)
{
	if (!s->time_given)
		return NO_TIMEOUT;
	if (!s->time_read)
		return 0;
	u64 ns = s->time[0] * 1000000000ULL + (micro ? s->time[1] * 1000 : s->time[1]);
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

/* The path that was fetched: an object known by its name only. */
static __always_inline void path_object(struct object *o, struct scratch *s)
{
	struct rec_name *r = &s->name;
	if (!r->text[0])
		return;
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
	u64 file = file_of(task, fd);
	if (!file)
		return 0;
	struct object o = { .kind = K_UNKNOWN, .fd = fd };
	file_object(&o, file, which);
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

static __always_inline void poll_object(struct scratch *s, struct task_struct *task, struct object *o, u32 n, u32 which)
{
	if (!n || !s->words_read)
		return;
	begin_set(s);
	if (n > POLL_MAX)
		s->set.more = n - POLL_MAX;
	for (u32 i = 0; i < POLL_MAX; i++) {
		if (i >= n)
			break;
		s32 fd = (s32)s->words[i];
		if (fd >= 0)
			add_member(s, (u64)task, fd, which);
	}
	end_set(s, o);
}

/* How many bits are set. Arithmetic only: each branch would double what the verifier follows. */
static __always_inline u32 ones(u64 x)
{
	x -= (x >> 1) & 0x5555555555555555ULL;
	x = (x & 0x3333333333333333ULL) + ((x >> 2) & 0x3333333333333333ULL);
	x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	return (x * 0x0101010101010101ULL) >> 56;
}

static __always_inline void select_object(struct scratch *s, struct task_struct *task, struct object *o, u32 n, u32 which)
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

/* The object alone: of the call that a waker is in, or that just returned. `task` is the current thread as
 * a number: functions verified on their own take no typed pointers. */
int __noinline acted_on(struct thread *t, struct object *o, struct regs *r, u64 current, u64 tgid)
{
	struct task_struct *task = (void *)current;
	if (!t || !o || !r)
		return 0;
	u32 nr = r->orig_ax;
	u32 which = tgid >> 32;
	o->kind = K_NONE;
	if (nr >= CALLS)
		return 0;
	u32 class = class_of[nr & (CALLS - 1)];
	if ((class >= C_FD && class <= C_FD_PAIR) || class == C_RECVMMSG) {
		fd_object(t, task, o, r->di, which);
	} else if (class == C_SPLICE) {
		fd_object(t, task, o, r->dx, which);
	} else if (class == C_FUTEX || class == C_FUTEX2) {
		futex_object(o, r->di, tgid);
	} else if (class == C_FLOCK || class == C_FCNTL) {
		lock_object(t, task, o, r->di, which);
	} else if (class == C_SYSV || class == C_SEMTIMEDOP) {
		o->kind = K_SYSV;
		o->id = (u32)r->di;
	} else if (class == C_EXIT) {
		/* A thread that ends wakes those who join it through this word. */
		u64 word = (u64)READ(task, clear_child_tid);
		if (word)
			futex_object(o, word, tgid);
	} else if (class == C_PATH || class == C_PATHAT) {
		struct scratch *s = scratch(which);
		if (s) {
			fetch(false, task, r, s, class);
			path_object(o, s);
		}
	}
	return 0;
}

/* The class of the call that a thread blocks in. restart_syscall goes on with the call before it. */
static __always_inline u32 blocked_class(struct thread *t)
{
	u32 nr = t->call;
	if (nr >= CALLS)
		return C_NONE;
	u32 class = class_of[nr & (CALLS - 1)];
	if (class != C_RESTART) {
		t->before_restart = nr;
		return class;
	}
	nr = t->before_restart;
	class = class_of[nr & (CALLS - 1)];
	if (!restarts(class))
		return C_NONE;
	t->call = nr;
	return class;
}

/* Everything about the call that a thread blocks in. What its arguments point to has been fetched. */
int __noinline waits_on(struct thread *t, struct regs *r, u64 blocked, u64 tgid, u64 now)
{
	if (!t || !r)
		return 0;
	struct task_struct *task = (void *)blocked;
	struct object *o = &t->object;
	u32 which = tgid >> 32;
	struct scratch *s = scratch(which);
	u32 class = blocked_class(t);
	o->kind = K_NONE;
	o->id = 0;
	o->peer = 0;
	o->fd = ~0U;
	t->op = 0;
	t->value = 0;
	t->timeout = 0;
	if (!s)
		return 0;
	switch (class) {
	case C_FD_RECV:
	case C_FD_SEND:
	case C_FD:
	case C_RECVMMSG:
		fd_object(t, task, o, r->di, which);
		t->value = r->dx;
		if (class == C_FD)
			t->op = r->si;
		else if (o->kind >= K_UNIX_STREAM && o->kind <= K_SOCKET)
			t->timeout = class == C_RECVMMSG ? timeout_of(s, false)
							 : socket_timeout(task, r->di, class == C_FD_SEND);
		break;
	case C_FD_PAIR:
	case C_SPLICE:
		begin_set(s);
		add_member(s, (u64)task, r->di, which);
		add_member(s, (u64)task, class == C_SPLICE ? r->dx : r->si, which);
		end_set(s, o);
		break;
	case C_FLOCK:
		lock_object(t, task, o, r->di, which);
		t->op = r->si;
		break;
	case C_FCNTL:
		lock_object(t, task, o, r->di, which);
		t->op = r->si;
		t->value = s->words_read ? s->words[0] & 0xffff : 0;
		break;
	case C_FUTEX: {
		u32 plain = r->si & 127;
		u64 timeout = timeout_of(s, false);
		futex_object(o, r->di, tgid);
		t->op = r->si;
		t->value = r->dx;
		t->timeout = plain == 0 ? timeout : from_now(timeout, plain == 6 || (r->si & 256), now);
		break;
	}
	case C_FUTEX2:
		futex_object(o, r->di, tgid);
		t->op = r->r10;
		t->value = r->si;
		t->timeout = from_now(timeout_of(s, false), !r->r9, now);
		break;
	case C_POLL:
	case C_PPOLL:
		poll_object(s, task, o, r->si, which);
		t->value = r->si;
		t->timeout = class == C_POLL ? timeout_ms(r->dx) : timeout_of(s, false);
		break;
	case C_SELECT:
	case C_PSELECT:
		select_object(s, task, o, r->di, which);
		t->value = r->di;
		t->timeout = timeout_of(s, class == C_SELECT);
		break;
	case C_EPOLL:
	case C_EPOLL2: {
		fd_object(t, task, o, r->di, which);
		t->timeout = class == C_EPOLL ? timeout_ms(r->r10) : timeout_of(s, false);
		u64 file = file_of(task, r->di);
		if (o->kind == K_EPOLL && file) {
			send_epoll(o, file, now, which);
			u32 slot = r->di;
			t->memo[BOUND(slot, FILES)].time = now;
		}
		break;
	}
	case C_NANOSLEEP:
		t->timeout = timeout_of(s, false);
		break;
	case C_CLOCK_NANOSLEEP: {
		u64 timeout = timeout_of(s, false);
		t->op = r->di;
		t->timeout = r->si & 1 ? from_now(timeout, !r->di, now) : timeout;
		break;
	}
	case C_WAIT4:
		o->kind = K_CHILD;
		o->id = (s32)r->di > 0 ? (u32)r->di : 0;
		t->op = r->dx;
		t->value = r->di;
		t->timeout = NO_TIMEOUT;
		break;
	case C_WAITID:
		o->kind = K_CHILD;
		t->op = r->r10;
		t->value = r->si;
		t->timeout = NO_TIMEOUT;
		if (r->di == 1)
			o->id = (u32)r->si;
		else if (r->di == 3)
			fd_object(t, task, o, r->si, which);
		break;
	case C_SYSV:
	case C_SEMTIMEDOP:
		o->kind = K_SYSV;
		o->id = (u32)r->di;
		if (class == C_SEMTIMEDOP)
			t->timeout = timeout_of(s, false);
		break;
	case C_SIGTIMEDWAIT:
		t->timeout = timeout_of(s, false);
		break;
	case C_PATH:
	case C_PATHAT:
		path_object(o, s);
		break;
	}
	return 0;
}

/* The common calls, of which all is known without following pointers: what the current thread waits on.
 * False when waits_on has to look. */
static __always_inline bool waits_on_known(struct thread *t, struct task_struct *task, struct pt_regs *r, u64 now)
{
	u32 nr = t->call;
	if (nr >= CALLS)
		return true;
	u32 at = nr;
	u32 class = class_of[BOUND(at, CALLS)];
	if (class == C_FUTEX && !r->r10) {
		futex_object(&t->object, r->di, task->tgid);
		t->op = r->si;
		t->value = r->dx;
		t->timeout = NO_TIMEOUT;
		t->before_restart = nr;
		return true;
	}
	if ((class < C_FD || class > C_FD_SEND) && class != C_EPOLL)
		return false;
	u32 fd = r->di;
	struct remembered *m = known_file(t, task, fd);
	if (!m)
		return false;
	if (class == C_EPOLL) {
		if (m->object.kind != K_EPOLL || now - m->time > 1000000000ULL)
			return false;
		t->timeout = timeout_ms(r->r10);
	} else {
		t->value = r->dx;
		if (class == C_FD) {
			t->op = r->si;
		} else if (m->sock) {
			struct sock *sk = (void *)m->sock;
			u64 jiffies = class == C_FD_SEND ? READ(sk, sk_sndtimeo) : READ(sk, sk_rcvtimeo);
			t->timeout = jiffies >= (1ULL << 62) ? NO_TIMEOUT : jiffies * jiffy_ns;
		}
	}
	t->object = m->object;
	t->object.fd = fd;
	t->before_restart = nr;
	return true;
}

/* The same for what a waker acts on. */
static __always_inline bool acts_on_known(struct thread *w, struct task_struct *waker, struct object *o, struct pt_regs *r,
					  u32 nr)
{
	if (nr >= CALLS)
		return true;
	u32 at = nr;
	u32 class = class_of[BOUND(at, CALLS)];
	if (class == C_NONE)
		return true;
	if (class == C_FUTEX || class == C_FUTEX2) {
		futex_object(o, r->di, waker->tgid);
		return true;
	}
	if (class < C_FD || class > C_FD_SEND)
		return false;
	struct remembered *m = known_file(w, waker, r->di);
	if (!m)
		return false;
	o->kind = m->object.kind;
	o->id = m->object.id;
	o->peer = m->object.peer;
	return true;
}

#endif
