/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The BPF target has no architecture of its own: take the generic answer. */
#include <asm-generic/posix_types.h>
