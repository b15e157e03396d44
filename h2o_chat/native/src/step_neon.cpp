#include "lanes_neon.h"
#include "step.h"
#include "change.h"
#include "prompt.h"

const Form form_neon = {decode, embed, before, after, head, change, attend_pass};
