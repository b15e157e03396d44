#define H2O_SIXTEEN  // of kernels.h
#include "lanes_avx512.h"
#include "step.h"
#include "change.h"
#include "prompt.h"

const Form form_amx = {decode, embed, before, after, head, change, attend_pass};
