/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Requests that are there before they are asked for. A server that reads before it waits, or goes on with a connection as
 * long as something comes, serves several of them from one boundary wait to the next. So a unit also begins with what a
 * thread receives from a connection that it has answered in this unit. Included by guard.bpf.c.
 *
 * Only of connections that were accepted: over one that the thread's process has made, it asks somebody, and what comes
 * after its question is a part of the unit. Who speaks first does not tell this (mail and database servers do), so the
 * kernel is asked who made it.
 *
 * Programs that never do so need none of it: once that is known, user space detaches these (tracer/src/guards/ahead.rs).
 */
#ifndef PG_SERVED_H
#define PG_SERVED_H

#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10
#define PEEK 2 /* MSG_PEEK: it takes nothing */

struct sock___queue {
	unsigned int sk_max_ack_backlog;
} __attribute__((preserve_access_index));

/* The end of a connection that was accepted has of the listener: its queue's length (TCP), or its name (Unix; who connects
 * has none). */
static __always_inline bool is_accepted(struct sock *sk)
{
	u16 family = sk->__sk_common.skc_family;
	if (family == AF_UNIX)
		return BPF_CORE_READ((struct unix_sock *)sk, addr) != 0;
	return (family == AF_INET || family == AF_INET6) && BPF_CORE_READ((struct sock___queue *)sk, sk_max_ack_backlog);
}

/* The current thread's unit. Every message of the machine comes by here: who is not guarded is told by one load, no call. */
static __always_inline struct unit *serving(void)
{
	u32 zero = 0;
	u32 *of = bpf_map_lookup_elem(&here, &zero);
	u32 slot = of ? *of : 0;
	if (!slot--)
		return 0;
	struct unit *u = bpf_map_lookup_elem(&units, &slot);
	return u && u->running && u->tid == (u32)bpf_get_current_pid_tgid() ? u : 0;
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(on_answer, struct sock *sk, int bytes)
{
	struct unit *u = serving();
	if (!u || bytes <= 0 || u->answered)
		return 0;
	if (!u->served && is_accepted(sk))
		u->served = (u64)sk;
	if (u->served != (u64)sk)
		return 0;
	u->answered = 1;
	struct guarded_loop *l = bpf_map_lookup_elem(&loops, &u->loop);
	if (l)
		__sync_fetch_and_add(&l->answered, 1);
	return 0;
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(on_request, struct sock *sk, int bytes, int flags)
{
	struct unit *u = serving();
	if (!u)
		return 0;
	bool again = u->served == (u64)sk;
	if (again && !u->answered)
		return 0;
	/* Whether it looks for the next request before it waits is a matter of the program, and shows without one, too. */
	struct guarded_loop *l = again ? bpf_map_lookup_elem(&loops, &u->loop) : 0;
	if (l && !l->ahead)
		l->ahead = 1;
	if (bytes <= 0 || flags & PEEK || !is_accepted(sk))
		return 0;
	if (again) {
		u64 now = bpf_ktime_get_ns();
		had_cpu(u, now, lit_since());
		age(u, now);
		end_unit(u, now, 0);
		begin_unit(u, now, 0);
		u->came = 1;
	}
	/* Of another connection: still the same turn. */
	u->served = (u64)sk;
	u->answered = 0;
	return 0;
}

#endif
