// The public headers by themselves, twice, as strict C++17, with the flags of a careless user.
#include <exattn/exattn.hpp>

#include <exattn/exattn.hpp>

extern exattn_status (*const header_cxx17_attention)(const exattn_attention_args *);
exattn_status (*const header_cxx17_attention)(const exattn_attention_args *) = exattn_attention;
