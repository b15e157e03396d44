#include "lanes_neon.h"
#include "step.h"
#include "compare.h"
#include "prompt.h"

const Form form_neon = {decode, embed, before, after, head, compare, attend_pass};
