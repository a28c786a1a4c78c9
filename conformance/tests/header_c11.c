/* The public header by itself, twice, as strict C11. */
#include <exattn/exattn.h>

#include <exattn/exattn.h>

extern exattn_status (*const header_c11_attention)(const exattn_attention_args *);
exattn_status (*const header_c11_attention)(const exattn_attention_args *) = exattn_attention;
