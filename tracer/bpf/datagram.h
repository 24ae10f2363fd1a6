/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Datagrams: one record each, between the two ends it went between. Faster than records may be sent, they are
 * added up like other messages, without the other end.
 */
#ifndef PG_DATAGRAM_H
#define PG_DATAGRAM_H

/* The unix datagram that a thread is receiving: from whom. */
struct heard {
	u64 sender, time;
};
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct heard);
} heard SEC(".maps");

#define HEARD_NS 1000000

/*
 * Attached only while there are unix datagrams: streams come here, too. There is no such place for UDP, where
 * small packets are copied without a trace: of those the sender's record names both ends.
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
		addressed_in(&o, (u32)r->orig_ax | (u64)ROOM_TASK << 32, r->si, r->r8, r->r9);
	}
	struct flow alone = { .bytes = bytes, .first = now, .last = now, .count = 1 };
	send_flow(&alone, &o, direction, task->pid, task->tgid);
	return true;
}

#endif
