import type { Volume } from '../api/types';
import { percent } from '../lib/format';
import { healthText, rebuilds, toneOf } from '../lib/volume';
import { Badge } from './Badge';

export function HealthBadge({ volume }: { volume: Volume }) {
  const building = rebuilds(volume);
  return (
    <Badge tone={toneOf(volume)}>
      {healthText(volume)}
      {building.length > 0 && `, rebuilding ${percent(Math.min(...building.map((r) => r.progress)), 100)}`}
    </Badge>
  );
}
