/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Datagrams: one record each, between the two ends it went between. Faster than records may be sent, they are
 * added up like other messages, without the other end.
 */
#ifndef PG_DATAGRAM_H
#define PG_DATAGRAM_H

/* The unix datagram that a thread is receiving: from whom. What it is sending by sendmmsg: which one is next. */
struct heard {
	u64 sender, time;
	u64 batch; /* its messages, in memory of the thread */
	u32 next, pad;
};
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct heard);
} heard SEC(".maps");

#define HEARD_NS 1000000

/*
 * Attached only while there are unix datagrams: streams come here, too. There is no such place for UDP: small
 * packets are copied without a trace, and since Linux 6.18 they are freed without one, too (skb_consume_udp hands
 * them to the CPU that they came from; before, consume_skb told of them). What is left, sk_data_ready, is passed by
 * every message of every socket, and of packets that come at once it shows the last one only (udp_prod_queue). So
 * of UDP the sender's record names both ends, and order and size tell which one was received; the recording says
 * so.
 */
SEC("tp_btf/skb_copy_datagram_iovec")
int BPF_PROG(on_datagram, const struct sk_buff *skb)
{
	struct sock *from = skb->sk;
	if (!from || from->__sk_common.skc_family != 1 || from->sk_type != SOCK_DGRAM)
		return 0;
	struct task_struct *task = bpf_get_current_task_btf();
	struct heard *h = bpf_task_storage_get(&heard, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (h) {
		h->time = bpf_ktime_get_ns();
		h->sender = sock_inode(from);
	}
	return 0;
}

#define HEADER 64 /* sizeof(struct mmsghdr) */
#define PIECES 4

/* struct user_msghdr */
struct message_head {
	u64 name;
	u32 name_len, pad;
	u64 pieces, count;
};

/* Has the message at `address` this length? Of one in many pieces that is not looked at. */
static __noinline bool is_long(u64 address, u64 bytes)
{
	struct message_head m;
	struct {
		u64 at, len;
	} piece;
	u64 sum = 0;
	if (bpf_probe_read_user(&m, sizeof(m), (void *)address))
		return false;
	if (m.count > PIECES)
		return true;
	for (u32 i = 0; i < PIECES; i++) {
		if (i >= m.count)
			break;
		if (bpf_probe_read_user(&piece, sizeof(piece), (void *)(m.pieces + i * sizeof(piece))))
			return false;
		sum += piece.len;
	}
	return sum == bytes;
}

/*
 * The address of the message of `n` at `batch` that sendmmsg has just sent: they are told one by one, in order.
 * Where a call of the same messages before ended early, their sizes show that this is another one. 0: unclear.
 */
static __noinline u64 sent_of(struct task_struct *task, u64 batch, u32 n, u64 bytes)
{
	struct heard *h = bpf_task_storage_get(&heard, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!h)
		return 0;
	u32 at = h->batch == batch && h->next < n ? h->next : 0;
	if (at && !is_long(batch + (u64)at * HEADER, bytes))
		at = 0;
	h->batch = batch;
	h->next = at + 1;
	if (!at && !is_long(batch, bytes))
		return 0;
	return batch + (u64)at * HEADER;
}

/* A record of this datagram alone; false when there may be none now. */
static __noinline bool datagram(struct sock *sk, struct task_struct *task, int bytes, u32 direction)
{
	u64 now = bpf_ktime_get_ns();
	if (!tokens(this_cpu(), 1, now))
		return false;
	struct object o = { .kind = K_UNKNOWN };
	sock_object(&o, number(sk), 0, ROOM_TASK);
	if (direction) {
		struct heard *h = bpf_task_storage_get(&heard, task, 0, 0);
		if (h && o.kind == K_UNIX_DATAGRAM && now - h->time < HEARD_NS) {
			o.peer = h->sender;
			h->time = 0;
		}
	} else {
		struct pt_regs *r = (struct pt_regs *)bpf_task_pt_regs(task);
		u64 call = (u32)r->orig_ax, message = r->si;
		if (call == NR_SENDMMSG && !o.peer)
			message = sent_of(task, message, r->dx, bytes);
		if (message)
			addressed_in(&o, call | (u64)ROOM_TASK << 32, message, r->r8, r->r9);
	}
	struct flow alone = { .bytes = bytes, .first = now, .last = now, .count = 1 };
	send_flow(&alone, &o, direction, task->pid, task->tgid);
	return true;
}

#endif
