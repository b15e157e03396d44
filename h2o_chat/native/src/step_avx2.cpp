#include "lanes_avx2.h"
#include "step.h"
#include "change.h"
#include "prompt.h"

const Form form_avx2 = {decode, embed, before, after, head, change, attend_pass};
