/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Level `messages`: bytes over sockets, added up within a segment. Level `syscalls`: every call.
 *
 * Bytes through pipes pass no tracepoint. A pipe's head and tail would tell how full it is, not who filled it: the
 * kernel keeps no name with a buffer. Who waits for an empty or full pipe is woken by who filled or emptied it,
 * which is recorded anyway, so they are not read.
 */
#ifndef PG_MESSAGE_H
#define PG_MESSAGE_H

#include "datagram.h"

/* The slot of a socket that has none yet; its number. */
static __noinline u32 new_use(struct uses *u, struct sock *sk, s64 cookie, u32 ends, u64 who)
{
	u32 tid = who, tgid = who >> 32;
	u32 at = ((u32)cookie << 1) & (SLOTS - 2);
	struct use *s = &u->slot[BOUND(at, SLOTS)];
	u32 other = at + 1;
	struct use *s2 = &u->slot[BOUND(other, SLOTS)];
	u64 last = s->flow[0].last > s->flow[1].last ? s->flow[0].last : s->flow[1].last;
	u64 last2 = s2->flow[0].last > s2->flow[1].last ? s2->flow[0].last : s2->flow[1].last;
	if (s2->cookie == cookie || (s->cookie != cookie && last2 < last)) {
		s = s2;
		at = other;
	}
	struct object *o = &u->object[BOUND(at, SLOTS)];
	send_flow(&s->flow[0], o, 0, tid, tgid);
	send_flow(&s->flow[1], o, 1, tid, tgid);
	u->dirty[0] &= ~(1ULL << (at & 63));
	u->dirty[1] &= ~(1ULL << (at & 63));
	o->kind = K_UNKNOWN;
	sock_object(o, number(sk), 0, ROOM_TASK);
	s->cookie = cookie;
	s->ends = ends;
	s->tcp = o->kind == K_TCP;
	return at;
}

static __always_inline u32 position_of(struct sock *sk, u32 direction)
{
	struct tcp_sock *tcp = (void *)sk;
	return direction ? READ(tcp, copied_seq) : READ(tcp, write_seq);
}

/*
 * When a message passed. Reading the clock takes longer than all the rest here (100 ns: it waits for what the
 * processor still has under way), so a thread that passes messages in quick succession has it read for one in
 * four or sixteen of them; the others get the time of that one and keep their order. At most that is 4 ms
 * early, a tick, typically less than 40 us; the first of a segment is always exact.
 */
static __always_inline u64 time_of_message(struct uses *u)
{
	u64 tick = bpf_jiffies64();
	if (u->ahead && u->tick == tick) {
		u->ahead--;
		u->time++;
		return u->time;
	}
	u64 now = bpf_ktime_get_ns();
	u64 passed = now - u->exact, messages = u->skipped - u->ahead + 1;
	u32 ahead = passed < messages * 2500 ? 15 : passed < messages * 10000 ? 3 : 0;
	u->exact = now;
	u->time = now;
	u->tick = tick;
	u->ahead = ahead;
	u->skipped = ahead;
	return now;
}

static __always_inline int message(struct sock *sk, int bytes, u32 direction)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u32 tid = task->pid, tgid = task->tgid;
	if (bytes <= 0 || !tid || tgid == own_tgid)
		return 0;
	count(COUNT_MESSAGES);
	if (sk->sk_type == SOCK_DGRAM && datagram(sk, task, bytes, direction))
		return 0;
	struct uses *u = bpf_task_storage_get(&uses, task, 0, 0);
	if (!u) {
		struct thread *t = thread_of(task);
		u = bpf_task_storage_get(&uses, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (!t || !u) {
			count(LOST_EVENTS);
			return 0;
		}
		t->has_uses = 1;
	}
	u64 now = time_of_message(u);
	s64 cookie = sk->__sk_common.skc_cookie.counter;
	if (!cookie) /* it gets one */
		cookie = bpf_get_socket_cookie(sk);
	u32 ends = sk->__sk_common.skc_dport | (u32)sk->__sk_common.skc_num << 16;
	if (u->collected) {
		/* The thread slept with messages, and just now they are being collected: this one goes alone. */
		struct object o = { .kind = K_UNKNOWN };
		sock_object(&o, number(sk), 0, ROOM_TASK);
		struct flow alone = { .bytes = bytes, .first = now, .last = now, .count = 1 };
		if (o.kind == K_TCP)
			alone.position = position_of(sk, direction);
		send_flow(&alone, &o, direction, tid, tgid);
		return 0;
	}
	u->busy = 1;
	u32 at = ((u32)cookie << 1) & (SLOTS - 2);
	struct use *s = &u->slot[BOUND(at, SLOTS)];
	if (s->cookie != cookie || s->ends != ends) {
		at++;
		s = &u->slot[BOUND(at, SLOTS)];
		if (s->cookie != cookie || s->ends != ends) {
			at = new_use(u, sk, cookie, ends, tid | (u64)tgid << 32);
			s = &u->slot[BOUND(at, SLOTS)];
		}
	}
	struct flow *f = &s->flow[direction];
	if (f->bytes > FLOW_BYTES)
		send_flow(f, &u->object[BOUND(at, SLOTS)], direction, tid, tgid);
	if (!f->count) {
		/* The other end has no inode before the connection was accepted, which may be after the first message. */
		struct object *o = &u->object[BOUND(at, SLOTS)];
		if (!o->peer && o->kind == K_UNIX_STREAM)
			sock_object(o, number(sk), o->id, ROOM_TASK);
		f->first = now;
		f->bytes = 0;
		if (!(u->dirty[0] | u->dirty[1]))
			u->oldest = now;
		u->dirty[direction] |= 1ULL << (at & 63);
	}
	f->count++;
	f->bytes += (u32)bytes;
	f->last = now;
	if (s->tcp)
		f->position = position_of(sk, direction);
	u->busy = 0;
	/* Last: whoever is switched out before this has nothing half done to send. */
	struct cpu *c = this_cpu();
	if (c)
		c->talked = 1;
	return 0;
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(on_send, struct sock *sk, int ret)
{
	return message(sk, ret, 0);
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(on_receive, struct sock *sk, int ret, int flags)
{
	/* A peek takes nothing. */
	return flags & 2 ? 0 : message(sk, ret, 1);
}

/* Is the thread's every call to be recorded now? Asked at each system call of the machine while a burst lasts. */
static __always_inline bool calls_wanted(struct control *c, struct task_struct *task)
{
	if (!c || task->tgid == own_tgid)
		return false;
	if (c->all_calls)
		return true;
	u32 who = c->burst_of == OF_CHILDREN ? task->real_parent->tgid : task->pid;
	bool wanted = false;
	for (int i = 0; i < BURSTING; i++)
		wanted |= c->bursting[i] == who;
	/* The parent of the first process has no number, as a place that is free. */
	return wanted && who;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(on_sys_enter, struct pt_regs *regs, long id)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct control *c = controls();
	count(COUNT_PASSED);
	if (!calls_wanted(c, task))
		return 0;
	struct thread *t = thread_of(task);
	if (!t)
		return 0;
	t->call_start = bpf_ktime_get_ns();
	t->call_burst = c->burst;
	t->now_call = call_of(task, id);
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(on_sys_exit, struct pt_regs *regs, long result)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct control *c = controls();
	if (!calls_wanted(c, task))
		return 0;
	struct thread *t = known_thread(task);
	/* One that began in an earlier burst was another call. */
	if (!t || !t->call_start || t->call_burst != c->burst)
		return 0;
	u64 now = bpf_ktime_get_ns(), start = t->call_start;
	u32 nr = t->now_call;
	t->call_start = 0;
	struct scratch *s = scratch(ROOM_TASK);
	if (!s || bpf_probe_read_kernel(&s->regs, sizeof(s->regs), regs))
		return 0;
	struct regs *args = &s->regs;
	u32 tid = task->pid, tgid = task->tgid;
	struct object o = { .kind = K_NONE };
	args->orig_ax = nr;
	acted_on(&o, args, number(task), tgid | (u64)ROOM_TASK << 32);
	u32 at = nr, class = nr < CALLS ? class_of[BOUND(at, CALLS)] : C_NONE;
	u32 op = class == C_FUTEX || class == C_FLOCK || class == C_FCNTL ? args->si : 0;
	/* kill(pid, 0) asks whether there is such a process. */
	if (nr == 62 && !(u32)args->si)
		op = args->di;
	if (result > 0 && (o.kind == K_PIPE || o.kind == K_FIFO || o.kind == K_EVENTFD || o.kind == K_TTY) &&
	    (class == C_FD_RECV || class == C_FD_SEND)) {
		/* No tracepoint tells of bytes through these. */
		struct flow piped = { .first = start, .last = now, .bytes = result, .count = 1 };
		send_flow(&piped, &o, class == C_FD_RECV, tid, tgid);
	}
	if (t->run_count && t->run_call == nr && t->run_op == op && t->run_object.kind == o.kind &&
	    t->run_object.id == o.id && (t->run_result < 0) == (result < 0) && now - t->run_start < 5000000) {
		t->run_count++;
	} else {
		flush_calls(t, tid, tgid);
		t->run_call = nr;
		t->run_op = op;
		t->run_object = o;
		t->run_start = start;
		t->run_count = 1;
	}
	t->run_end = now;
	t->run_result = result;
	return 0;
}

#endif
