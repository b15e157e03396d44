#include "lanes_avx512.h"
#include "step.h"
#include "change.h"
#include "prompt.h"

const Form form_avx512 = {decode, embed, before, after, head, change, attend_pass};
