//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include "kernel.h"

#include "claim.h"
#include "verdict.h"

SEC("sockops")
int on_socket(struct bpf_sock_ops *ops)
{
	switch (ops->op) {
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
		note_agent_end(ops);
		break;
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		claim_server_end(ops);
		break;
	case BPF_SOCK_OPS_STATE_CB:
		/* Not when the server's FIN or RST comes: its last message may not
		 * have been read yet, and the numbers are needed until then. */
		if (ops->args[1] == BPF_TCP_FIN_WAIT1 || ops->args[1] == BPF_TCP_LAST_ACK)
			forget_agent_end(ops);
		break;
	}
	return 1;
}

/* Always SK_PASS: with a redirect set it means "to the client", without one "to
 * the agent". SK_DROP would be an EACCES in the model server. */
SEC("sk_msg")
int on_message(struct sk_msg_md *msg)
{
	decide(msg);
	return SK_PASS;
}

/* For trial_socks: it is there to be attached, and passes what it sees. */
SEC("sk_msg")
int on_trial(struct sk_msg_md *msg)
{
	(void)msg;
	return SK_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";
