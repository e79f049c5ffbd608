/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What tautline needs of the kernel beyond <linux/bpf.h>: section and map
 * macros, the helpers that are called, and the one field that is read by CO-RE.
 */
#ifndef TAUTLINE_KERNEL_H
#define TAUTLINE_KERNEL_H

#include <linux/bpf.h>

#define SEC(name) __attribute__((section(name), used))
#undef __always_inline
#define __always_inline inline __attribute__((always_inline))

/* What is read or written before it stays before it. */
#define barrier() __asm__ volatile("" ::: "memory")

/* Map definitions: a number is the length of an array type, a type a pointer. */
#define __uint(name, value) int(*name)[value]
#define __type(name, value) typeof(value) *name

#define AF_INET 2
#define AF_INET6 10

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define from_net32(x) __builtin_bswap32(x)
#else
#define from_net32(x) (x)
#endif

/* CO-RE: the loader finds the offset of the field in the running kernel. */
struct tcp_sock {
	__u32 write_seq;
} __attribute__((preserve_access_index));

#define HELPER(ret, name, ...) static ret (*bpf_##name)(__VA_ARGS__) = (void *)BPF_FUNC_##name

HELPER(void *, map_lookup_elem, void *map, const void *key);
HELPER(long, map_update_elem, void *map, const void *key, const void *value, __u64 flags);
HELPER(long, map_delete_elem, void *map, const void *key);
HELPER(__u64, ktime_get_ns, void);
HELPER(__u64, get_socket_cookie, void *ctx);
HELPER(__u64, get_netns_cookie, void *ctx);
HELPER(void *, sk_storage_get, void *map, void *sk, void *value, __u64 flags);
HELPER(long, sk_storage_delete, void *map, void *sk);
HELPER(long, sock_ops_cb_flags_set, struct bpf_sock_ops *ctx, int flags);
HELPER(long, sock_hash_update, struct bpf_sock_ops *ctx, void *map, void *key, __u64 flags);
HELPER(long, msg_redirect_hash, struct sk_msg_md *msg, void *map, void *key, __u64 flags);
HELPER(long, msg_pull_data, struct sk_msg_md *msg, __u32 start, __u32 end, __u64 flags);
HELPER(struct tcp_sock *, skc_to_tcp_sock, void *sk);
HELPER(long, ringbuf_output, void *map, void *data, __u64 size, __u64 flags);
HELPER(void *, ringbuf_reserve, void *map, __u64 size, __u64 flags);
HELPER(void, ringbuf_submit, void *data, __u64 flags);
HELPER(long, loop, __u32 times, void *callback, void *ctx, __u64 flags);

#endif
