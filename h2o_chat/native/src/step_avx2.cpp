#include "lanes_avx2.h"
#include "step.h"
#include "compare.h"
#include "prompt.h"

const Form form_avx2 = {decode, embed, before, after, head, compare, attend_pass};
