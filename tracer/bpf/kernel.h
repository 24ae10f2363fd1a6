/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The kernel types the programs read, reduced to the fields used. Every access is relocated to the
 * running kernel (CO-RE), so only names and types matter here, not offsets.
 */
#ifndef PG_KERNEL_H
#define PG_KERNEL_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed int s32;
typedef signed long long s64;
typedef u8 __u8;
typedef u16 __u16;
typedef u32 __u32;
typedef u64 __u64;
typedef signed char __s8;
typedef signed short __s16;
typedef s32 __s32;
typedef s64 __s64;
typedef u16 __be16;
typedef u32 __be32;
typedef u32 __wsum;
typedef _Bool bool;
#define true 1
#define false 0
#define NULL ((void *)0)

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_STACK = 23,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};
#define TS_COMPAT 2 /* asm/thread_info.h: in a 32-bit system call */
#define BPF_ANY 0
#define BPF_NOEXIST 1
#define BPF_F_NO_PREALLOC 1
#define BPF_F_MMAPABLE 1024
#define BPF_F_USER_STACK 256
#define BPF_RB_NO_WAKEUP 1
#define BPF_RB_FORCE_WAKEUP 2
#define BPF_LOCAL_STORAGE_GET_F_CREATE 1

/* What the kernel keeps of a thread's registers in user mode: the layout is fixed (asm/ptrace.h). */
struct regs {
	u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct pt_regs {
	unsigned long r10, r9, r8, dx, si, di, orig_ax, ip, sp;
};
struct qstr {
	u64 hash_len; /* of the name: its hash and its length */
	const unsigned char *name;
};
struct super_block {
	u32 s_dev;
	unsigned long s_magic;
};
struct inode {
	u16 i_mode;
	struct super_block *i_sb;
	unsigned long i_ino;
	u32 i_rdev;
	void *i_private;
};
struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
	struct inode *d_inode;
};
struct vfsmount {
	struct dentry *mnt_root;
};
struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
};
struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
};
struct file {
	struct inode *f_inode;
	void *private_data;
	struct path f_path;
};
struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};
struct files_struct {
	struct fdtable *fdt;
	struct file *fd_array[64];
};
struct upid {
	int nr;
};
struct pid {
	struct upid numbers[1];
};
struct mm_struct {
	unsigned long start_code, end_code, arg_start, arg_end;
};
struct cfs_bandwidth {
	u64 quota;
	u64 throttled_time;
};
struct task_group {
	struct task_group *parent;
	struct cfs_bandwidth cfs_bandwidth;
};
struct thread_info {
	u32 status;
};
struct ns_common {
	unsigned int inum;
};
struct ipc_namespace {
	struct ns_common ns;
};
struct nsproxy {
	struct ipc_namespace *ipc_ns;
};
struct rq {
	int cpu;
	u64 clock;
	u64 prev_steal_time_rq;
};
struct cfs_rq {
	struct rq *rq;
};
struct sched_entity {
	struct cfs_rq *cfs_rq;
};
struct task_struct {
	struct thread_info thread_info;
	unsigned int __state;
	unsigned int flags;
	int on_cpu;
	int on_rq;
	int exit_code;
	unsigned long jobctl;
	int pid, tgid;
	struct task_struct *group_leader;
	struct task_struct *real_parent;
	int *clear_child_tid;
	char comm[16];
	struct nsproxy *nsproxy;
	struct sched_entity se;
	struct files_struct *files;
	struct mm_struct *mm;
	struct task_group *sched_task_group;
	void *worker_private;
	struct io_uring_task *io_uring;
};
struct block_device {
	u32 bd_dev;
};
struct gendisk {
	char disk_name[32];
	struct block_device *part0;
};
struct request_queue {
	struct gendisk *disk;
};
struct request {
	struct request_queue *q;
};
struct io_uring_sqe;
struct io_uring_task {
	struct file *registered_rings[16];
};
struct io_ring_ctx {
	unsigned int flags;
	u32 *sq_array;
	struct io_uring_sqe *sq_sqes;
	unsigned int cached_sq_head, sq_entries, cached_cq_tail;
};
/* A kernel worker: what a thread of the work queues has at hand. */
struct kthread {
	void *data;
};
struct work_struct;
struct pool_workqueue;
struct worker {
	struct work_struct *current_work;
	void *current_func;
};
struct linux_binprm;
struct irqaction;
struct hrtimer;
struct timer_list;
struct kernel_siginfo;

struct in6_addr {
	union {
		u8 u6_addr8[16];
		u32 u6_addr32[4];
	} in6_u;
};
typedef struct {
	s64 counter;
} atomic64_t;
struct sock_common {
	atomic64_t skc_cookie;
	u32 skc_daddr, skc_rcv_saddr;
	u16 skc_dport, skc_num;
	u16 skc_family;
	struct in6_addr skc_v6_daddr, skc_v6_rcv_saddr;
};
struct sock {
	struct sock_common __sk_common;
	long sk_rcvtimeo, sk_sndtimeo;
	struct socket *sk_socket;
	u16 sk_protocol, sk_type;
};
struct socket {
	struct sock *sk;
};
struct socket_alloc {
	struct socket socket;
	struct inode vfs_inode;
};
struct sockaddr_un {
	u16 sun_family;
	char sun_path[108];
};
struct unix_address {
	int len;
	struct sockaddr_un name[0];
};
struct unix_sock {
	struct sock sk;
	struct unix_address *addr;
	struct sock *peer;
};
struct tcp_sock {
	u32 write_seq, copied_seq;
};
struct sk_buff {
	struct sock *sk;
};
struct eventfd_ctx {
	int id;
};
struct rb_node {
	struct rb_node *rb_right, *rb_left;
	unsigned long __rb_parent_color;
};
struct rb_root {
	struct rb_node *rb_node;
};
struct rb_root_cached {
	struct rb_root rb_root;
	struct rb_node *rb_leftmost;
};
struct epoll_filefd {
	struct file *file;
	int fd;
} __attribute__((packed));
struct epoll_event {
	u32 events;
} __attribute__((packed));
struct epitem {
	struct rb_node rbn;
	struct epoll_filefd ffd;
	struct epoll_event event;
};
struct eventpoll {
	struct rb_root_cached rbr;
};
struct tty_driver {
	int major, minor_start;
};
struct tty_struct {
	int index;
	struct tty_driver *driver;
	struct tty_struct *link;
	struct {
		bool stopped;
	} flow;
};
struct tty_file_private {
	struct tty_struct *tty;
};
struct timespec64 {
	s64 tv_sec;
	long tv_nsec;
};
struct itimerspec64 {
	struct timespec64 it_value;
};
struct vm_area_struct {
	unsigned long vm_start, vm_flags, vm_pgoff;
	struct file *vm_file;
};
struct bpf_iter_meta;
struct bpf_iter__task {
	struct task_struct *task;
};
struct bpf_perf_event_data;

#pragma clang attribute pop

#define PF_IO_WORKER 0x10
#define PF_WQ_WORKER 0x20
#define PF_USER_WORKER 0x4000
#define PF_KTHREAD 0x200000
#define NO_USER (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER)
#define VM_SHARED 8
#define JOBCTL_TRAP_FREEZE (1UL << 23)
#define TASK_FROZEN 0x8000

#define S_IFMT 0170000
#define S_IFSOCK 0140000
#define S_IFREG 0100000
#define S_IFBLK 0060000
#define S_IFDIR 0040000
#define S_IFCHR 0020000
#define S_IFIFO 0010000

#define ANON_INODE_FS_MAGIC 0x09041934
#define PIPEFS_MAGIC 0x50495045
#define MQUEUE_MAGIC 0x19800202
#define PID_FS_MAGIC 0x50494446

#endif
