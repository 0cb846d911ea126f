import { Button, Tooltip, TooltipTrigger } from 'react-aria-components';
import type { Volume } from '../api/types';
import { lacksLocalReplica, localityReason, localReplicaFollows, nodeOf } from '../lib/volume';

// LocalityMark warns that all data of a best-effort volume is on other nodes, and gives the reason.
export function LocalityMark({ volume }: { volume: Volume }) {
  if (!lacksLocalReplica(volume)) return null;
  const reason = localityReason(volume);
  const text = `No healthy replica on node ${nodeOf(volume)}, where the volume is attached${reason === '' ? `; ${localReplicaFollows}` : `: ${reason}`}`;
  return (
    <TooltipTrigger delay={200}>
      <Button className="locality-mark" aria-label={text}>
        ⚠
      </Button>
      <Tooltip className="tooltip">{text}</Tooltip>
    </TooltipTrigger>
  );
}
