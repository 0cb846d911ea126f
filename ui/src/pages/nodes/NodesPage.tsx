import { useCollection } from '../../api/live';
import { Loading } from '../../components/Loading';
import { Problem } from '../../components/Problem';
import { NodeCard } from './NodeCard';

export default function NodesPage() {
  const nodes = useCollection('nodes');
  return (
    <>
      <h1>Nodes and disks</h1>
      {nodes.isPending && <Loading what="nodes" />}
      {nodes.isError && <Problem error={nodes.error} retry={() => void nodes.refetch()} />}
      {nodes.data?.map((n) => <NodeCard key={n.name} node={n} />)}
    </>
  );
}
