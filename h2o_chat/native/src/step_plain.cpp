#include "lanes_plain.h"
#include "step.h"
#include "compare.h"
#include "prompt.h"

const Form form_plain = {decode, embed, before, after, head, compare, attend_pass};
