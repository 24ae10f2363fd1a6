/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Futex words in shared mappings: processes see one word at different addresses, so it is known by what is
 * mapped, as the kernel itself does (get_futex_key). Private words never come here.
 */
#ifndef PG_MAPPING_H
#define PG_MAPPING_H

#define FUTEX_PRIVATE 128
#define SHARED_WORD (1ULL << 63) /* in the peer of a futex: not the number of a process */
#define BUSY_WORD (1ULL << 62)   /* ...: what is mapped there could not be looked at */
#define BUSY (-16)		 /* EBUSY */
#define WORDS 16

/* Words looked up lately: a look-up takes the lock of the address space. */
struct word_known {
	u64 address, time;
	u64 id, peer; /* peer 0: private after all */
};
struct words {
	struct word_known slot[WORDS];
};
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct words);
} words SEC(".maps");

/* Words of one program often lie a power of two apart. */
static __always_inline u32 slot_of_word(u64 address)
{
	return (address * 0x9e3779b97f4a7c15ULL) >> 60;
}

struct found {
	u64 address, id, peer, file;
};

static long on_mapping(struct task_struct *task, struct vm_area_struct *vma, struct found *f)
{
	if (!(vma->vm_flags & VM_SHARED))
		return 0;
	struct file *file = vma->vm_file;
	if (!file)
		return 0;
	struct inode *in = READ(file, f_inode);
	f->id = f->address - vma->vm_start + (vma->vm_pgoff << 12);
	f->peer = mix(READ(in, i_ino), READ(in, i_sb, s_dev)) | SHARED_WORD;
	f->file = number(file);
	return 0;
}

/* Make `o`, a word of the address space of the current thread `task`, one of what is mapped there, if that was looked up
 * lately. */
static __always_inline bool known_word(struct object *o, struct task_struct *task, u64 now)
{
	struct words *w = bpf_task_storage_get(&words, task, 0, 0);
	if (!w)
		return false;
	u32 at = slot_of_word(o->id);
	struct word_known *k = &w->slot[BOUND(at, WORDS)];
	if (k->address != o->id || now - k->time > memo_ns)
		return false;
	if (k->peer) {
		o->id = k->id;
		o->peer = k->peer;
	}
	return true;
}

/* Make `o`, a word of the address space of `task`, one of what is mapped there, if that is shared. */
static __always_inline void shared_word(struct object *o, struct task_struct *task, u32 which)
{
	u64 now = bpf_ktime_get_ns();
	struct words *w = bpf_task_storage_get(&words, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!w)
		return;
	o->peer &= ~BUSY_WORD;
	u32 at = slot_of_word(o->id);
	struct word_known *k = &w->slot[BOUND(at, WORDS)];
	if (k->address != o->id || now - k->time > memo_ns) {
		struct found f = { .address = o->id };
		/* Whoever changes the mappings is not waited for, and each CPU gives back one lock at a time, so that two
		 * recorders at once get in each other's way: the collector then looks at /proc/PID/maps. */
		long error = bpf_find_vma(task, f.address, on_mapping, &f, 0);
		if (error) {
			if (error == BUSY)
				o->peer |= BUSY_WORD;
			return;
		}
		k->address = o->id;
		k->time = now;
		k->id = f.id;
		k->peer = f.peer;
		if (f.peer) {
			o->id = f.id;
			o->peer = f.peer;
			send_path(o, f.file, which);
			return;
		}
	}
	if (k->peer) {
		o->id = k->id;
		o->peer = k->peer;
	}
}

#endif
