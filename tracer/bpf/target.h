/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What a system call waits on or acts on, and of a wait the operation, value and time-out. */
#ifndef PG_TARGET_H
#define PG_TARGET_H

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

static __always_inline void lock_object(struct task_struct *task, struct object *o, u32 fd, u32 which)
{
	fd_object(o, (u64)task, fd, which);
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

/* In the peer of System V objects, beside the number of their namespace: each kind counts by itself. POSIX message
 * queues are files, which have a device there. */
#define SYSV (1ULL << 63)
enum sysv { SYSV_SEMAPHORES = 1, SYSV_MESSAGES = 2 };

static __always_inline void sysv_object(struct object *o, struct task_struct *task, u32 nr, u32 id)
{
	u64 space = READ(task, nsproxy, ipc_ns, ns.inum);
	o->kind = K_SYSV;
	o->id = id;
	/* msgsnd, msgrcv, msgctl */
	o->peer = SYSV | space << 2 | (nr >= 69 && nr <= 71 ? SYSV_MESSAGES : SYSV_SEMAPHORES);
}

/* Completes a socket by the address in the arguments of a call. */
static __always_inline void addressed_of(struct object *o, u64 call, struct regs *r)
{
	if ((u32)call == NR_CONNECT)
		addressed_in(o, call, 0, r->si, r->dx);
	else
		addressed_in(o, call, r->si, r->r8, r->r9);
}

/* The object alone: of the call that a waker is in, or that just returned. `task` is the current thread as
 * a number: functions verified on their own take no typed pointers. */
int __noinline acted_on(struct object *o, struct regs *r, u64 current, u64 tgid)
{
	struct task_struct *task = (void *)current;
	if (!o || !r)
		return 0;
	u32 nr = r->orig_ax;
	u32 which = tgid >> 32;
	o->kind = K_NONE;
	if (nr >= CALLS)
		return 0;
	u32 class = class_of[nr & (CALLS - 1)];
	if ((class >= C_FD && class <= C_FD_PAIR) || class == C_RECVMMSG) {
		fd_object(o, (u64)task, r->di, which);
		addressed_of(o, nr | (u64)which << 32, r);
	} else if (class == C_SPLICE) {
		fd_object(o, (u64)task, r->dx, which);
	} else if (class == C_FUTEX || class == C_FUTEX2) {
		futex_object(o, r->di, tgid);
		if (!((class == C_FUTEX ? r->si : r->r10) & FUTEX_PRIVATE))
			shared_word(o, bpf_get_current_task_btf(), which);
	} else if (class == C_FLOCK || class == C_FCNTL) {
		lock_object(task, o, r->di, which);
	} else if (class == C_SYSV || class == C_SEMTIMEDOP) {
		sysv_object(o, task, nr, r->di);
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

#define NR_OPEN 2
#define NR_OPENAT 257
/* The operation of open(2) is its flags: told from a recording without them. */
#define FLAGS_GIVEN (1U << 31)

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
		fd_object(o, (u64)task, r->di, which);
		t->value = r->dx;
		if (which != ROOM_ITER)
			addressed_of(o, t->call | (u64)which << 32, r);
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
		lock_object(task, o, r->di, which);
		t->op = r->si;
		break;
	case C_FCNTL:
		lock_object(task, o, r->di, which);
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
		if (!(t->op & FUTEX_PRIVATE) && which != ROOM_ITER)
			shared_word(o, bpf_get_current_task_btf(), which);
		break;
	}
	case C_FUTEX2:
		futex_object(o, r->di, tgid);
		t->op = r->r10;
		t->value = r->si;
		t->timeout = from_now(timeout_of(s, false), !r->r9, now);
		if (!(t->op & FUTEX_PRIVATE) && which != ROOM_ITER)
			shared_word(o, bpf_get_current_task_btf(), which);
		break;
	case C_POLL:
	case C_PPOLL:
		poll_object(s, t, task, r->si, which);
		t->set = o->kind == K_SET ? o->id : 0;
		t->value = r->si;
		t->timeout = class == C_POLL ? timeout_ms(r->dx) : timeout_of(s, false);
		break;
	case C_SELECT:
	case C_PSELECT:
		select_object(s, t, task, r->di, which);
		t->value = r->di;
		t->timeout = timeout_of(s, class == C_SELECT);
		break;
	case C_EPOLL:
	case C_EPOLL2: {
		fd_object(o, (u64)task, r->di, which);
		t->timeout = class == C_EPOLL ? timeout_ms(r->r10) : timeout_of(s, false);
		u64 file = file_of(task, r->di);
		if (o->kind == K_EPOLL && file) {
			send_epoll(o, file, now, which);
			u64 number = READ((struct file *)file, f_inode, i_ino);
			struct remembered *m = place_of(number, r->di, tgid, which);
			if (m && m->file == file)
				m->time = now;
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
			fd_object(o, (u64)task, r->si, which);
		break;
	case C_SYSV:
	case C_SEMTIMEDOP:
		sysv_object(o, task, r->orig_ax, r->di);
		if (class == C_SEMTIMEDOP)
			t->timeout = timeout_of(s, false);
		break;
	case C_SIGTIMEDWAIT:
		t->timeout = timeout_of(s, false);
		break;
	case C_PATH:
	case C_PATHAT:
		path_object(o, s);
		if (t->call == NR_OPEN)
			t->op = FLAGS_GIVEN | (u32)r->si;
		else if (t->call == NR_OPENAT)
			t->op = FLAGS_GIVEN | (u32)r->dx;
		break;
	}
	return 0;
}

#define POLL_KNOWN 4

/* poll and ppoll of few descriptors, all known: nearly always the same set as before. */
static __noinline bool polls_known(struct thread *t, struct task_struct *task, struct pt_regs *r, u32 class)
{
	struct scratch *s = scratch(ROOM_SCHED);
	struct files *known = known_files(ROOM_SCHED);
	u64 n = r->si, limit = r->dx;
	if (!s || !known || !n || n > POLL_KNOWN || bpf_probe_read_user(s->words, n * 8, (void *)r->di))
		return false;
	u64 h = SET_SEED;
	/* Not how many: each number would be followed by itself. */
	bool several = false;
	struct remembered *last = 0;
	u32 last_fd = 0;
	for (u32 i = 0; i < POLL_KNOWN; i++) {
		if (i >= n)
			break;
		s32 fd = (s32)s->words[i];
		if (!poll_asks(s->words[i]))
			continue;
		several = last != 0;
		last = known_file(known, task, fd, true);
		if (!last)
			return false;
		last_fd = fd;
		h = set_hash(h, last->object.kind, last->object.id, last->object.peer);
	}
	if (!last || (several && t->set != h))
		return false;
	t->timeout = timeout_ms(limit);
	if (class == C_PPOLL) {
		s->time_given = limit != 0;
		s->time_read = limit && !bpf_probe_read_user(s->time, sizeof(s->time), (void *)limit);
		t->timeout = timeout_of(s, false);
	}
	t->value = n;
	if (!several) {
		t->object = last->object;
		t->object.fd = last_fd;
	} else {
		t->object.kind = K_SET;
		t->object.id = h;
	}
	t->before_restart = t->call;
	return true;
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
		if (!(r->si & FUTEX_PRIVATE) && !known_word(&t->object, task, now))
			return false;
		t->op = r->si;
		t->value = r->dx;
		t->timeout = NO_TIMEOUT;
		t->before_restart = nr;
		return true;
	}
	if (class == C_POLL || class == C_PPOLL)
		return polls_known(t, task, r, class);
	if ((class < C_FD || class > C_FD_SEND) && class != C_EPOLL)
		return false;
	u32 fd = r->di;
	struct files *known = known_files(ROOM_SCHED);
	struct remembered *m = known ? known_file(known, task, fd, false) : 0;
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
		} else if (is_socket(m->object.kind)) {
			struct sock *sk = (void *)m->extra;
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
static __always_inline bool acts_on_known(struct task_struct *waker, struct object *o, struct pt_regs *r, u32 nr, u64 now)
{
	if (nr >= CALLS)
		return true;
	u32 at = nr;
	u32 class = class_of[BOUND(at, CALLS)];
	if (class == C_NONE)
		return true;
	if (class == C_FUTEX) {
		futex_object(o, r->di, waker->tgid);
		return (r->si & FUTEX_PRIVATE) || known_word(o, waker, now);
	}
	if (class < C_FD || class > C_FD_SEND)
		return false;
	struct files *known = known_files(ROOM_SCHED);
	struct remembered *m = known ? known_file(known, waker, r->di, false) : 0;
	if (!m)
		return false;
	o->kind = m->object.kind;
	o->id = m->object.id;
	o->peer = m->object.peer;
	return true;
}

#endif
